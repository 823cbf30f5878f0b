//! A request to the console: page, time range and selection of releases. All of it is in the address, so that it works without
//! scripts and can be sent to somebody else. Unknown words are ignored.

use std::collections::BTreeMap;

/// A page of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Page {
    /// For the person who answers for the releases.
    Releases,
    /// For the person who keeps the service running.
    Engine,
}

impl Page {
    const ALL: [Self; 2] = [Self::Releases, Self::Engine];

    fn path(self) -> &'static str {
        match self {
            Self::Releases => "/",
            Self::Engine => "/engine",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Releases => "Releases",
            Self::Engine => "Engine room",
        }
    }
}

/// How far back pictures and tables go: how it is written and said, and its seconds.
const RANGES: [(&str, &str, i64); 4] =
    [("15m", "15 minutes", 900), ("1h", "1 hour", 3600), ("1d", "1 day", 86_400), ("all", "all", i64::MAX / 1000)];

/// Which releases the table lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// All.
    All,
    /// Those of which records were left out.
    LeftOut,
    /// Windows of which nothing could be published.
    Unmet,
}

impl Kept {
    const ALL: [Self; 3] = [Self::All, Self::LeftOut, Self::Unmet];

    fn written(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::LeftOut => "left-out",
            Self::Unmet => "unmet",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::LeftOut => "with records left out",
            Self::Unmet => "nothing published",
        }
    }
}

/// A request for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ask {
    pub(super) page: Page,
    range: usize,
    pub(super) kept: Kept,
}

impl Ask {
    /// The request for `page` with these words of the address.
    pub(crate) fn new(page: Page, query: &BTreeMap<String, String>) -> Self {
        let range = query.get("since").and_then(|since| RANGES.iter().position(|range| range.0 == since));
        let kept = query.get("releases").and_then(|kept| Kept::ALL.into_iter().find(|one| one.written() == kept));
        Self { page, range: range.unwrap_or(RANGES.len() - 1), kept: kept.unwrap_or(Kept::All) }
    }

    /// Seconds that pictures and tables go back.
    pub(crate) fn seconds(self) -> i64 {
        RANGES[self.range].2
    }

    /// The same for every page, range and selection: name, address, and whether it is the one that is shown.
    pub(super) fn pages(self) -> Vec<(&'static str, String, bool)> {
        Page::ALL.map(|page| (page.name(), Self { page, ..self }.address(), page == self.page)).into()
    }

    /// See [`Ask::pages`].
    pub(super) fn ranges(self) -> Vec<(&'static str, String, bool)> {
        let one = |(range, said): (usize, &(&'static str, &'static str, i64))| {
            (said.1, Self { range, ..self }.address(), range == self.range)
        };
        RANGES.iter().enumerate().map(one).collect()
    }

    /// See [`Ask::pages`].
    pub(super) fn selections(self) -> Vec<(&'static str, String, bool)> {
        Kept::ALL
            .map(|kept| (kept.name(), format!("{}#releases", Self { kept, ..self }.address()), kept == self.kept))
            .into()
    }

    /// The address of the page; what is usual is left out of it.
    pub(super) fn address(self) -> String {
        let mut words = Vec::new();
        if self.range + 1 < RANGES.len() {
            words.push(format!("since={}", RANGES[self.range].0));
        }
        if self.kept != Kept::All {
            words.push(format!("releases={}", self.kept.written()));
        }
        let query = if words.is_empty() { String::new() } else { format!("?{}", words.join("&")) };
        format!("{}{query}", self.page.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_what_was_asked() {
        for (query, address) in [
            (&[][..], "/engine"),
            (&[("since", "1h")], "/engine?since=1h"),
            (&[("since", "1h"), ("releases", "unmet")], "/engine?since=1h&releases=unmet"),
            (&[("since", "yesterday"), ("releases", "<b>"), ("x", "y")], "/engine"),
        ] {
            let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(Ask::new(Page::Engine, &query).address(), address);
        }
    }
}
