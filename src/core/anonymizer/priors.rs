//! The population's share of each confidential sentence, learnt over windows (Wang, Liao, Hsu 2007: Pr(s) before the release).
//!
//! Only the search knows it (`granulation-ga`, the objective `sf`): the gate, and a release that is made again after a crash, count
//! from the release alone. The shares are those of the windows before, so that a window does not decide about itself.

use super::Anonymizer;
use crate::encode::Dictionaries;
use crate::model::batch::Rows;
use crate::model::confidential::MAX_SENTENCES;
use crate::privacy::Rules;

/// How often each confidential sentence was true of a record.
#[derive(Default)]
pub(super) struct SentenceShares {
    holding: Vec<u64>,
    records: u64,
}

impl SentenceShares {
    /// The share of each sentence; none before the first window.
    fn shares(&self) -> Vec<f64> {
        self.holding.iter().map(|&holding| holding as f64 / self.records.max(1) as f64).collect()
    }

    /// Counts the records of a window.
    fn add(&mut self, rows: &Rows, dictionaries: &Dictionaries, sentences: usize) {
        self.holding.resize(sentences, 0);
        self.records += rows.len() as u64;
        for profile in (0..rows.len()).filter_map(|i| dictionaries.profiles.get(rows.profile(i) as usize)) {
            let holds = |bit: &usize| profile.holds >> bit & 1 == 1;
            (0..sentences.min(MAX_SENTENCES)).filter(holds).for_each(|bit| self.holding[bit] += 1);
        }
    }
}

impl Anonymizer {
    /// The rules for the search of a window with these rows, whose sentences then count for the windows to come.
    pub(super) fn search_rules(&mut self, rows: &Rows, dictionaries: &Dictionaries) -> Rules {
        if !self.choice.tuning.learns_priors {
            return self.rules.bind(&dictionaries.values());
        }
        let shares = self.sentences.shares();
        let mut values = dictionaries.values();
        values.shares = &shares;
        let rules = self.rules.bind(&values);
        self.sentences.add(rows, dictionaries, self.policy.sentences().count());
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::confidential::{Field, Formula, Sentence};
    use crate::model::hierarchy::Hierarchy;
    use crate::model::policy::Criterion;
    use crate::model::schema::Role;
    use crate::search::choose::{Choice, Levels};
    use crate::search::evaluator::Evaluator;
    use crate::search::fixture::{Table, choice, policy};
    use crate::search::{Algorithm, Tuning};

    /// Two classes of two; the sentence is true of half of the people of one class, and of nobody else.
    #[test]
    fn windows_before_say_how_likely_a_sentence_is() {
        let says = Formula::In(Field::Sensitive(0), vec!["ill".into()]);
        let sentence = Sentence { name: "s".into(), says, when: None, damage: 1.0, prior: None };
        let mut policy = policy(vec![("a", Hierarchy::trivial())], &[("health", Role::Sensitive)], 2);
        policy.criteria.push(Criterion::Confidential(vec![sentence]));
        let table = |rows: [[&str; 2]; 4]| Table::new(policy.clone(), &rows.map(|row| row.to_vec()));
        let own = table([["x", "ill"], ["x", "well"], ["y", "well"], ["y", "well"]]);
        let many = table([["x", "ill"], ["x", "well"], ["y", "ill"], ["y", "well"]]);
        let tuning = Tuning { learns_priors: true, ..Tuning::default() };
        let choice = Choice { tuning, ..choice(Algorithm::GranulationGa, Levels::Free) };
        let mut anonymizer = Anonymizer::new(own.policy.clone(), choice, "test", 0);
        let mut security = |table: &Table| {
            let rules = anonymizer.search_rules(&table.rows, &table.dictionaries);
            let evaluator = Evaluator::new(&table.policy, &rules, table.sets());
            evaluator.evaluate(table.policy.lattice().bottom()).security
        };
        // A class says half where the window says a quarter: half of the way to certainty, for half of the people.
        let first = security(&own);
        assert!((first - 0.75).abs() < 1e-9, "{first}");
        // Here both classes say half, which is nothing new in the window, and is where a quarter was known. Then 3 of 8 are.
        assert!((security(&many) - 0.5).abs() < 1e-9);
        let known: f64 = 3.0 / 8.0;
        let expected = 1.0 - (known.ln() - 0.5_f64.ln()) / known.ln() / 2.0;
        assert!((security(&own) - expected).abs() < 1e-9);
    }
}
