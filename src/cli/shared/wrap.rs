//! Sentences on a terminal: broken between words, and continued below the text of their item.

use std::io::IsTerminal;

use crossterm::terminal;

/// A text for `stream`: on a terminal no line is longer than it is wide, elsewhere the text is as it was.
pub(in crate::cli) fn for_terminal(text: &str, stream: &impl IsTerminal) -> String {
    match terminal::size() {
        Ok((columns, _)) if stream.is_terminal() => {
            text.lines().flat_map(|line| wrapped(line, usize::from(columns))).collect::<Vec<_>>().join("\n")
        }
        _ => text.to_owned(),
    }
}

/// The lines of one line, each of at most `columns` letters. A word that is longer is cut.
pub(in crate::cli) fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    if line.chars().count() <= columns {
        return vec![line.to_owned()];
    }
    let text = line.trim_start_matches([' ', '-']);
    // A deep indent leaves no room.
    let indent = line[..line.len() - text.len()].chars().count().min(columns / 2);
    let (mut lines, mut current): (Vec<String>, String) = (Vec::new(), line[..line.len() - text.len()].to_owned());
    let mut letters = indent;
    for word in text.split_inclusive(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let needs = |word: &[char]| word.iter().rposition(|c| *c != ' ').map_or(0, |last| last + 1);
        while letters + needs(&word) > columns {
            if letters == indent {
                let rest = word.split_off((columns - indent).min(word.len()));
                current.extend(word);
                word = rest;
            }
            lines.push(current.trim_end().to_owned());
            (current, letters) = (" ".repeat(indent), indent);
        }
        letters += word.len();
        current.extend(word);
    }
    lines.extend((letters > indent).then(|| current.trim_end().to_owned()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("  - one two three", 11), ["  - one two", "    three"]);
        assert_eq!(wrapped("abcdefgh", 5), ["abcde", "fgh"]);
        assert_eq!(wrapped("a abcdefgh b", 5), ["a", "abcde", "fgh b"]);
        assert_eq!(wrapped("short", 80), ["short"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
