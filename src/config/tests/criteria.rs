//! Which criteria, renderings and searches can be written, and which make no sense.

use super::*;

const SENTENCES: &str = "\
policy:
  quasi_identifiers: [{ name: age, hierarchy: trivial, priority: 3 }, { name: zip, hierarchy: { prefix: { length: 5 } } }]
  sensitive: [{ name: income }, { name: health, hierarchy: { csv: hierarchies/country.csv } }]
  keep: [wish]
  private: [consent]
  label: income
  loss: cm
  privacy:
    - { t-closeness: { field: income, t: 0.2, distance: ordered } }
    - { t-closeness: { field: income, t: 20%, distance: ordered, order: [low, 1.50, high] } }
    - { t-closeness: { field: health, t: 0.3, distance: hierarchical } }
    - { p-sensitive: { field: health, p: 2 } }
    - { alpha-k: { field: health, alpha: 0.6, k: 3 } }
    - { lkc: { l: 1, k: 4, c: 50% } }
    - confidential:
        sentences:
          - { field: health, equals: 2 }
          - { name: poor, any: [{ field: income, in: [0, '1'] }, { not: { field: health, equals: true } }], damage: 3, prior: 20% }
          - all: [{ field: income, equals: 100K }, { field: health, equals: 1 }]
            when: { any: [{ field: wish, equals: strict }, { field: consent, equals: false }] }
    - { min-security: 0.9 }
    - { k-anonymity: { k: 9, over: [zip] } }
    - { l-diversity: { field: income, l: 2, over: [zip, age] } }
search: { algorithm: granulation-ga }
";

#[test]
fn every_criterion_can_be_written() {
    use crate::model::confidential::{Field, Formula, Sentence};
    use crate::model::policy::{Distance, Loss};
    let config = load(SENTENCES).unwrap();
    assert_eq!((config.choice.algorithm, config.policy.loss), (Algorithm::GranulationGa, Loss::Cm));
    let criteria = &config.policy.criteria;
    assert_eq!(criteria[0], Criterion::TCloseness { field: 0, t: 0.2, distance: Distance::Ordered { order: None } });
    let order = Some(["low", "1.5", "high"].map(str::to_owned).to_vec());
    assert_eq!(criteria[1], Criterion::TCloseness { field: 0, t: 0.2, distance: Distance::Ordered { order } });
    assert!(
        matches!(&criteria[2], Criterion::TCloseness { field: 1, distance: Distance::Hierarchical(h), .. } if h.height() == 2)
    );
    assert_eq!(criteria[3], Criterion::PSensitive { field: 1, p: 2 });
    assert_eq!(criteria[4], Criterion::AlphaK { field: 1, alpha: 0.6, k: K(3) });
    assert_eq!(criteria[5], Criterion::Lkc { l: 1, k: K(4), c: 0.5, fields: vec![0, 1] });
    let is = |field, values: &[&str]| Formula::In(field, values.iter().map(|v| (*v).to_owned()).collect());
    let (income, health) = (Field::Sensitive(0), Field::Sensitive(1));
    let sentence = |name: &str, says, when, damage| Sentence { name: name.into(), says, when, damage, prior: None };
    let poor = Formula::Any(vec![is(income, &["0", "1"]), Formula::Not(Box::new(is(health, &["true"])))]);
    let both = Formula::All(vec![is(income, &["100K"]), is(health, &["1"])]);
    // Private fields follow the kept ones.
    let minds = Formula::Any(vec![is(Field::Kept(0), &["strict"]), is(Field::Kept(1), &["false"])]);
    let expected = vec![
        sentence("1", is(health, &["2"]), None, 1.0),
        Sentence { prior: Some(0.2), ..sentence("poor", poor, None, 3.0) },
        sentence("3", both, Some(minds), 1.0),
    ];
    assert_eq!(criteria[6], Criterion::Confidential(expected));
    assert_eq!(criteria[7], Criterion::MinSecurity(0.9));
    assert_eq!(criteria[8], Criterion::Over { known: vec![1], criterion: Box::new(Criterion::KAnonymity(K(9))) });
    let diverse = Criterion::LDiversity { field: 0, l: 2.0, variant: crate::model::policy::Diversity::Distinct };
    assert_eq!(criteria[9], diverse, "over all quasi-identifiers is the criterion itself");
    let other = load(&SENTENCES.replace("equals: strict", "equals: lax")).unwrap();
    assert_ne!(config.policy.fingerprint, other.policy.fingerprint);
}

#[test]
fn criteria_that_make_no_sense_are_refused() {
    let with = |from: &str, to: &str| {
        let changed = SENTENCES.replace(from, to);
        assert_ne!(changed, SENTENCES, "{from}");
        changed
    };
    one(
        &with("  label: income\n", "  identifiers: [id]\n"),
        7,
        "`cm` compares class labels: name the field under `label`",
    );
    one(&with("t: 0.2, distance: ordered }", "t: 1 }"), 9, "asks for nothing");
    one(&with("t: 0.2, distance: ordered }", "t: 0.2, order: [a, b] }"), 9, "only with `distance: ordered`");
    one(&with("[low, 1.50, high]", "[low, 1.50, low]"), 10, "twice");
    one(&with("{ field: health, t: 0.3", "{ field: income, t: 0.3"), 11, "needs a hierarchy");
    one(&with("p: 2", "p: 1"), 12, "write 2 or more");
    one(&with("field: health, p", "field: helth, p"), 12, "did you mean `health`?");
    one(&with("alpha: 0.6", "alpha: 0"), 13, "can never be met");
    one(&with("alpha: 0.6", "alpha: 1"), 13, "asks for nothing");
    one(&with("k: 3", "k: 50001"), 13, "can never be reached");
    one(&with("l: 1,", "l: 3,"), 14, "more than there are quasi-identifiers: write 2 or less");
    one(&with("c: 50%", "c: 50%, fields: [wish]"), 14, "not listed under `sensitive`");
    one(&with("{ field: health, equals: 2 }", "{ field: zip, equals: 2 }"), 17, "neither `sensitive` nor in `keep`");
    one(&with("{ field: health, equals: 2 }", "{ field: health }"), 17, "either `equals` or a list `in`");
    one(&with("{ field: health, equals: 2 }", "{ damage: 2 }"), 17, "write one of them");
    one(&with("{ field: health, equals: 2 }", "{ field: health, equals: [2] }"), 17, "expected a value");
    one(&with("damage: 3", "damage: 0"), 18, "0.000001 or more");
    one(
        &with("any: [{ field: wish, equals: strict }, { field: consent, equals: false }]", "any: []"),
        20,
        "`any` is empty",
    );
    one(&with("{ min-security: 0.9 }", "{ min-security: 9 }"), 21, "a share between 0 and 1");
    one(
        &with("{ field: health, equals: 2 }", "{ field: consent, equals: 2 }"),
        17,
        "neither `sensitive` nor in `keep`",
    );
    one(&with("private: [consent]", "private: [wish, consent]"), 5, "a private field is never published");
    one(&with("prior: 20%", "prior: 1"), 18, "prior = `1` is certain");
    one(&with("over: [zip] }", "over: [zpi] }"), 22, "did you mean `zip`?");
    one(&with("over: [zip] }", "over: [zip, zip] }"), 22, "twice");
    one(&with("over: [zip] }", "over: [] }"), 22, "names no quasi-identifier");
    let privacy = |text: &str, more: &str| policy(more).replace("[{ k-anonymity: 5 }]", text);
    one(&privacy("[{ min-security: 0.9 }]", ""), 6, "add a `confidential` criterion");
    let search = "search: { algorithm: granulation }\n";
    one(&policy(search), 7, "`granulation` is about confidential sentences");
    assert!(load(&privacy("[{ confidential: { sentences: [{ field: job, equals: cook }] } }]", search)).is_ok());
    let many = vec!["{ field: job, equals: cook }"; 65].join(", ");
    one(&privacy(&format!("[{{ confidential: {{ sentences: [{many}] }} }}]"), ""), 6, "65 confidential sentences");
}

#[test]
fn renderings_need_something_to_render() {
    use crate::model::policy::Render;
    let renders = |yaml: &str| -> Vec<Render> { load(yaml).unwrap().policy.quasi.iter().map(|q| q.render).collect() };
    let all = |render: &str| policy(&format!("  render: {render}\n"));
    // Codes have a median; names keep their label.
    assert_eq!(renders(&all("microaggregate")), [Render::Median, Render::Label]);
    one(&all("interval"), 7, "changes nothing");
    one(&all("microaggregate").replace("{ prefix: { length: 2 } }", "{ csv: hierarchies/country.csv }"), 7, "codes");
    let zip = |own: &str, more: &str| policy(more).replace("{ name: age,", &format!("{{ name: age, {own},"));
    let country = |own: &str| policy("").replace("{ name: country,", &format!("{{ name: country, render: {own},"));
    assert_eq!(renders(&country("mode")), [Render::Label, Render::Mode]);
    assert_eq!(renders(&zip("render: label", "")), [Render::Label, Render::Label]);
    one(
        &country("mean"),
        4,
        "`render: mean` of `country` has no meaning, its values are names: write `mode` or `label`",
    );
    one(&country("median"), 4, "has no meaning");
    one(&zip("render: interval", ""), 3, "its values are codes: write `median`, `mode` or `label`");
    one(&zip("render: median, min_level: 1", ""), 3, "never shows");
    one(&zip("render: mode, max_level: 0", ""), 3, "never shows");
    one(&zip("min_level: 1", "  render: microaggregate\n"), 7, "changes nothing");
    one(&zip("render: mode", "  render: microaggregate\n"), 7, "without a `render` of its own");
    one(&zip("render: middle", ""), 3, "`median`");
}

#[test]
fn a_statistic_needs_a_floor_on_people() {
    for floor in ["k-anonymity: 2", "alpha-k: { field: job, alpha: 0.5, k: 2 }", "lkc: { l: 1, k: 2, c: 0.5 }"] {
        load(&policy("  render: microaggregate\n").replace("k-anonymity: 5", floor)).unwrap();
    }
    for none in ["k-anonymity: 1", "l-diversity: { field: job, l: 2 }"] {
        one(&policy("  render: microaggregate\n").replace("k-anonymity: 5", none), 7, "add { k-anonymity: 2 } or more");
        let own = policy("").replace("{ name: age,", "{ name: age, render: mode,").replace("k-anonymity: 5", none);
        one(&own, 3, "no criterion has a k above 1");
    }
}

#[test]
fn renderings_are_in_the_fingerprint() {
    let of = |yaml: &str| load(yaml).unwrap().policy.fingerprint;
    let zip = |render: &str| of(&policy("").replace("{ name: age,", &format!("{{ name: age, render: {render},")));
    assert_ne!(zip("median"), zip("label"));
    assert_ne!(zip("median"), zip("mode"));
    // Written out or left to the policy, it is the same.
    assert_eq!(zip("median"), of(&policy("  render: microaggregate\n")));
    assert_eq!(zip("label"), of(&policy("")));
}

#[test]
fn every_search_can_be_named() {
    for algorithm in [Algorithm::SubtreeBottomUp, Algorithm::TopDown, Algorithm::TopDownExtended] {
        let config = load(&policy(&format!("search: {{ algorithm: {} }}\n", algorithm.as_str()))).unwrap();
        assert_eq!(config.choice.algorithm, algorithm);
    }
}
