//! Recodings as people say them: "age as it is, zip hidden, born by year". The words of one level are the hierarchy's
//! ([`Hierarchy::words`](crate::model::hierarchy::Hierarchy::words)).

use super::manifest::AttributeLevel;
use crate::model::hierarchy::Hierarchy;
use crate::model::lattice::Level;
use crate::model::policy::{Policy, QuasiIdentifier};

impl AttributeLevel {
    /// What was done to the attribute, to be read behind its name. Where records or values have levels of their own, what most rows
    /// have, and how far it goes.
    pub fn words(&self, hierarchy: &Hierarchy) -> String {
        let coarsest = hierarchy.words(self.level);
        let [finest, typical] = [self.finest, self.typical].map(|level| level.map(|level| hierarchy.words(level)));
        match (&self.cut, finest.unwrap_or_else(|| coarsest.clone()), typical) {
            (Some(cut), ..) => format!("as {} values of mixed levels, {coarsest} at worst", cut.len()),
            (None, finest, _) if finest == coarsest => coarsest.into_owned(),
            (None, finest, None) => format!("{finest} at best, {coarsest} at worst"),
            (None, finest, Some(typical)) if typical == coarsest => format!("mostly {coarsest}, {finest} at best"),
            (None, _, Some(typical)) => format!("mostly {typical}, {coarsest} at worst"),
        }
    }

    /// The finest level that occurs, as far as it is known.
    pub fn finest(&self) -> Level {
        self.finest.unwrap_or(if self.cut.is_some() { 0 } else { self.level })
    }

    /// The level at which a cut shows the leaf: the same in every row.
    fn of_cut(&self, hierarchy: &Hierarchy, leaf: &str) -> Option<Level> {
        let cut = self.cut.as_ref()?;
        (0..=self.level)
            .find(|&level| hierarchy.label(leaf, level).is_some_and(|label| cut.iter().any(|shown| *shown == *label)))
    }

    /// The level that most rows have or are finer than, as far as it is known; else the finest one.
    pub fn typical(&self) -> Level {
        self.typical.unwrap_or_else(|| self.finest())
    }
}

impl Policy {
    /// The recoding of a release in one line; the attributes are those of the policy, in its order, but for those that share their words
    /// with an earlier one and stand beside it.
    pub fn recoding_words(&self, recoding: &[AttributeLevel]) -> String {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for (quasi, level) in self.quasi.iter().zip(recoding) {
            let words = level.words(&quasi.hierarchy);
            match groups.iter_mut().find(|(shared, _)| *shared == words) {
                Some((_, names)) => names.push(&quasi.name),
                None => groups.push((words, vec![&quasi.name])),
            }
        }
        let one = |(words, names): &(String, Vec<&str>)| match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => {
                format!("{} and {last} {}", rest.join(", "), words.replace("as it is", "as they are"))
            }
            _ => format!("{} {words}", names.join("")),
        };
        let said: Vec<String> = groups.iter().map(one).collect();
        // Where a part has commas of its own, they do not tell the parts from each other.
        said.join(if said.iter().any(|part| part.contains(',')) { "; " } else { ", " })
    }

    /// An example: a made-up record before and after the recoding, in sentences; nothing if no hierarchy has an example.
    pub fn example_words(&self, recoding: &[AttributeLevel]) -> String {
        let examples = self
            .quasi
            .iter()
            .zip(recoding)
            .filter_map(|(quasi, level)| Some((quasi, level, quasi.hierarchy.example()?)));
        let examples: Vec<(&QuasiIdentifier, &AttributeLevel, String)> = examples.collect();
        let at = |of: &dyn Fn(&Hierarchy, &AttributeLevel, &str) -> Level| {
            let cell = |(quasi, level, leaf): &(&QuasiIdentifier, &AttributeLevel, String)| {
                let level = of(&quasi.hierarchy, level, leaf);
                format!("{} {}", quasi.name, quasi.hierarchy.label(leaf, level).unwrap_or_default())
            };
            examples.iter().map(cell).collect::<Vec<_>>().join(", ")
        };
        let before = at(&|_, _, _| 0);
        let mostly = at(&|hierarchy, level, leaf| level.of_cut(hierarchy, leaf).unwrap_or(level.typical()));
        let worst = at(&|hierarchy, level, leaf| level.of_cut(hierarchy, leaf).unwrap_or(level.level));
        let most = if recoding.iter().any(|level| level.typical.is_some()) { "mostly" } else { "at best" };
        match (examples.is_empty(), mostly == worst) {
            (true, _) => String::new(),
            (_, true) => format!("A made-up record: {before}. Published as: {worst}."),
            (_, false) => format!("A made-up record: {before}. Published {most} as: {mostly}; at worst as: {worst}."),
        }
    }

    /// A lattice node in one line.
    pub fn node_words(&self, levels: &[Level]) -> String {
        let one =
            |(quasi, &level): (&QuasiIdentifier, &Level)| format!("{} {}", quasi.name, quasi.hierarchy.words(level));
        self.quasi.iter().zip(levels).map(one).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::hierarchy::{DateSpec, DateUnit, Decimal, IntervalSpec, PrefixSpec};
    use crate::search::fixture::policy;

    #[test]
    fn a_recoding_is_a_line_of_words() {
        let quasi = vec![
            ("age", Hierarchy::intervals(IntervalSpec::new([Decimal::from(20)], 0.into(), 100.into())).unwrap()),
            ("zip", Hierarchy::prefix(PrefixSpec::new(5)).unwrap()),
            ("born", Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Year])).unwrap()),
        ];
        let policy = policy(quasi, &[], 2);
        assert_eq!(policy.node_words(&[0, 5, 1]), "age as it is, zip hidden, born by year");
        let level = |attribute: &str, level, finest, cut| AttributeLevel {
            attribute: attribute.into(),
            level,
            finest,
            typical: None,
            cut,
        };
        let mixed = [
            level("age", 2, Some(0), None),
            level("zip", 5, Some(5), None),
            level("born", 1, None, Some(vec!["1985".into(), "1987-05-14".into()])),
        ];
        let said =
            "age as it is at best, hidden at worst; zip hidden; born as 2 values of mixed levels, by year at worst";
        assert_eq!(policy.recoding_words(&mixed), said);
        let example = "A made-up record: age 31, zip 12345, born 1987-05-14. Published at best as: age 31, zip *****, born 1987-05-14; \
                       at worst as: age *, zip *****, born 1987-05-14.";
        assert_eq!(policy.example_words(&mixed), example);
        let typical = |typical| AttributeLevel { typical: Some(typical), ..mixed[0].clone() };
        assert_eq!(typical(1).words(&policy.quasi[0].hierarchy), "mostly in steps of 20, hidden at worst");
        assert_eq!(typical(2).words(&policy.quasi[0].hierarchy), "mostly hidden, as it is at best");
        let alike = [level("age", 2, None, None), level("zip", 5, None, None), level("born", 0, None, None)];
        assert_eq!(policy.recoding_words(&alike), "age and zip hidden, born by day");
        let alike = [mixed[0].clone(), level("zip", 5, Some(0), None), mixed[2].clone()];
        let said =
            "age and zip as they are at best, hidden at worst; born as 2 values of mixed levels, by year at worst";
        assert_eq!(policy.recoding_words(&alike), said);
        let plain = [level("age", 1, None, None), level("zip", 3, None, None), level("born", 0, None, None)];
        let said = "age in steps of 20, zip by its first 2 characters, born by day";
        assert_eq!(policy.recoding_words(&plain), said);
    }
}
