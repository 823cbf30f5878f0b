//! The parameters of searches.

use super::*;
use crate::search::evolutionary::tabu::Walking;

#[test]
fn every_number_of_tabu_ga_is_configurable() {
    let with = |search: &str| policy(&format!("search: {{ {search} }}\n"));
    let tuning = |search: &str| load(&with(search)).unwrap().choice.tuning;
    let (paper, tabu) = (Walking::default(), "cycles: 3, candidates: 4, length: 5, life: 6, satisfying: 60%");
    assert_eq!(tuning("algorithm: tabu-ga").walking, paper);
    let tuned = tuning(&format!("algorithm: tabu-ga, crossover_points: 2, tabu: {{ {tabu}, aspiration: true }}"));
    let (tabu_length, tabu_life, satisfying_share) = (5, 6, 0.6);
    let walking = Walking { cycles: 3, candidates: 4, tabu_length, tabu_life, satisfying_share, aspiration: true };
    assert_eq!((tuned.walking, tuned.crossover_points), (walking, Some(2)));
    one(&with("algorithm: tabu-ga, crossover_points: 3"), 7, "crossover_points");
    one(&with("algorithm: tabu, tabu: { cycles: 3 }"), 7, "write its cycles as `iterations`");
    one(&with("algorithm: genetic, tabu: { life: 3 }"), 7, "only with `algorithm: tabu-ga`");
    one(&with("algorithm: optimal, crossover_points: 2"), 7, "only with `algorithm: tabu-ga`");
}

#[test]
fn the_rates_of_evolution_are_configurable() {
    let with = |search: &str| policy(&format!("search: {{ {search} }}\n"));
    let tuning = |search: &str| load(&with(search)).unwrap().choice.tuning;
    assert_eq!(tuning("algorithm: genetic, mutation: 5%").mutation, Some(0.05));
    assert_eq!(tuning("algorithm: pbg-ea, mutation: 5%, crossover: 60%").crossover, Some(0.6));
    one(&with("algorithm: genetic, crossover: 60%"), 7, "only with `algorithm: pbg-ea`");
    one(&with("algorithm: tabu-ga, mutation: 5%"), 7, "only with `algorithm: pbg-ea`");
}

#[test]
fn a_search_as_its_paper_prints_it() {
    let tuning = |text: &str| load(&policy(text)).unwrap().choice.tuning;
    for of in ["subtree-bottom-up", "top-down-extended", "pbg-ea"] {
        assert!(tuning(&format!("search: {{ algorithm: {of}, as_printed: true }}\n")).as_printed, "{of}");
    }
    // What `auto` searches cuts with.
    assert!(tuning("  recoding: subtree\nsearch: { algorithm: auto, as_printed: true }\n").as_printed);
    assert!(tuning("  recoding: subtree\nsearch: { as_printed: true }\n").as_printed);
    one(&policy("search: { as_printed: true }\n"), 7, "only with `algorithm: subtree-bottom-up`");
    one(&policy("search: { algorithm: top-down, as_printed: true }\n"), 7, "only with `algorithm: subtree-bottom-up`");
    let line = "  recoding: subtree\nsearch: { tabu: { life: 3 } }\n";
    one(&policy(line), 8, "only with `algorithm: tabu-ga`");
}

#[test]
fn top_down_starts_above_k_by_a_margin() {
    let with = |search: &str| policy(&format!("search: {{ {search} }}\n"));
    let margin = |search: &str| load(&with(search)).unwrap().choice.tuning.margin;
    assert_eq!((margin("algorithm: top-down"), margin("algorithm: top-down, margin: 3")), (0, 3));
    assert_eq!(margin("algorithm: top-down-extended, margin: 2"), 2);
    one(&with("margin: 3"), 7, "only with `algorithm: top-down`");
    one(&with("algorithm: optimal, margin: 3"), 7, "only with `algorithm: top-down`");
}
