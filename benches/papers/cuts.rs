//! Dalvi, Keole (after Wang, Yu, Chakraborty 2004): the example of the TEA index, the 66 records of Figure 1, and cuts as printed and
//! refined against the full-domain optimum.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::policy::{Criterion, K, Loss, SuppressionLimit};
use veilstream::model::recoding::{Cut, Recoding};
use veilstream::model::schema::Role;
use veilstream::privacy::Rules;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::exact::optimal::Optimal;
use veilstream::search::greedy::subtree::SubtreeBottomUp;
use veilstream::search::{Budget, Search};

use crate::adult::Adult;
use crate::data::{Effort, Sheet, Table, census, people, policy, texts, verdict};

/// The tables of the paper, then ours on a table of people.
pub fn sheets(effort: &Effort) -> Vec<Sheet> {
    vec![example(), figure(), against_the_optimum(effort)]
}

fn csv(text: &str) -> Hierarchy {
    Hierarchy::parse_csv(text.as_bytes()).expect("it is one")
}

/// Example 3.2.1: nine combinations with their counts; {c2, d2} becomes f2.
fn example() -> Sheet {
    let quasi = vec![
        ("d1", csv("a1;e1;*\nb1;e1;*\nc1;f1;*\nd1;f1;*\n")),
        ("d2", csv("a2;e2;*\nb2;e2;*\nc2;f2;*\nd2;f2;*\n")),
        ("d3", csv("a3;e3';*\nb3;e3';*\nc3;f3;*\nd3;f3;*\ne3;g3;*\n")),
    ];
    // The paper names the counts 4 of the first path, 2 of both anonymity qids, and the sums 7 and 4; the others are made up.
    let before = [
        ("c1 b2 a3", 4),
        ("c1 b2 c3", 3),
        ("c1 b2 d3", 5),
        ("c1 c2 a3", 3),
        ("c1 c2 b3", 6),
        ("d1 c2 b3", 3),
        ("d1 c2 e3", 2),
        ("d1 d2 b3", 4),
        ("d1 d2 e3", 2),
    ];
    let rows: Vec<Vec<String>> = before
        .iter()
        .flat_map(|(qid, count)| (0..*count).map(|_| qid.split(' ').map(str::to_owned).collect()))
        .collect();
    let table = Table::new(policy(quasi, &[], 2, 0.0, Loss::Glm), &[], &["d1", "d2", "d3"], texts(&rows));
    let domains = table.sets.domains();
    let raised = Cut::new(&domains[1], [0, 0, 1, 1]).expect("a subtree");
    let applied = Recoding::Cuts(vec![Cut::level(&domains[0], 0), raised, Cut::level(&domains[2], 0)]);
    let counts = |recoding: &Recoding| -> BTreeMap<String, u32> {
        let columns = recoding.columns(domains);
        let evaluator = Evaluator::new(&table.policy, &table.rules, table.sets.clone());
        let classes = evaluator.classes(recoding);
        let label = |class: usize| {
            let labels: Vec<&str> = (0..3).map(|at| columns[at].label(classes.code(class, at))).collect();
            labels.join(" ")
        };
        (0..classes.len()).map(|class| (label(class), classes.sizes()[class])).collect()
    };
    let levels = || (0..3).map(|at| Cut::level(&domains[at], 0)).collect();
    let (first, then) = (counts(&Recoding::Cuts(levels())), counts(&applied));
    let mut sheet =
        Sheet::new("Bottom-up generalization (Dalvi, Keole), Example 3.2.1", &["combination", "paper", "ours", ""]);
    for (when, counts, name, paper) in [
        ("before", &first, "c1 b2 a3", 4),
        ("before", &first, "d1 d2 e3", 2),
        ("before", &first, "d1 c2 e3", 2),
        ("{c2, d2} is f2", &then, "d1 f2 b3", 7),
        ("{c2, d2} is f2", &then, "d1 f2 e3", 4),
    ] {
        let ours = counts.get(name).copied().unwrap_or(0);
        let reached = Some(ours == paper);
        sheet.row([format!("{name}, {when}"), paper.to_string(), ours.to_string(), verdict(reached)], reached);
    }
    sheet
}

/// Figure 1: as it is for k = 2, by hypertension for k = 3.
fn figure() -> Sheet {
    let lines = [("divorced M 35", 0, 2), ("divorced M 40", 16, 1), ("divorced F 35", 0, 2)];
    let lines = lines.into_iter().chain([("married M 35", 8, 2), ("married F 40", 2, 7), ("single M 50", 6, 20)]);
    let rows: Vec<Vec<String>> = lines
        .flat_map(|(qid, yes, no)| [(qid, "Y", yes), (qid, "N", no)])
        .flat_map(|(qid, label, n)| (0..n).map(move |_| qid.split(' ').chain([label]).map(str::to_owned).collect()))
        .collect();
    let records = rows.len();
    let run = |k: u32| {
        let quasi = vec![
            ("marital", csv("divorced;been married;*\nmarried;been married;*\nsingle;never married;*\n")),
            ("sex", csv("M;*\nF;*\n")),
            ("hours", csv("35;<40;*\n40;>=40;*\n50;>=40;*\n")),
        ];
        let policy = policy(quasi, &[("hypertension", Role::Label)], k, 0.0, Loss::Glm);
        let table = Table::new(policy, &[], &["marital", "sex", "hours", "hypertension"], texts(&rows));
        let evaluator = Evaluator::new(&table.policy, &table.rules, table.sets.clone());
        let search = SubtreeBottomUp { from: None, refine: false };
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let best =
            search.run(&table.policy.lattice(), &evaluator, &Budget::unlimited(), rng).best.expect("one satisfies");
        (best.evaluation.k, evaluator.loss_by(Loss::Cm, &best.recoding), best.recoding.coarsest().height())
    };
    let mut sheet = Sheet::new(
        "Bottom-up generalization, Figure 1, as printed",
        &["k", "records", "smallest class", "cm", "levels given up", ""],
    );
    for k in [2, 3] {
        let (least, cm, height) = run(k);
        // 66 records, 2-anonymous as they are and not 3-anonymous.
        let reached = Some(records == 66 && least >= k && (height == 0) == (k == 2));
        let cells = [k.to_string(), records.to_string(), least.to_string(), format!("{cm:.3}"), height.to_string()];
        sheet.row(cells.into_iter().chain([verdict(reached)]), reached);
    }
    sheet
}

const LIMITS: [f64; 3] = [0.0, 0.01, 0.05];

/// Cuts as printed, and refined, against the best node. Refined ones must not lose more than that.
fn against_the_optimum(effort: &Effort) -> Sheet {
    let head = ["k", "limit", "best node", "as printed", "refined", "checks", ""];
    let (title, table) = match (effort.adult, Adult::find()) {
        (true, Some(adult)) => ("Adult", census(&adult, Loss::Glm, |_| ())),
        (true, None) => {
            let sheet = Sheet::new("subtree-bottom-up against the full-domain optimum (glm), Adult", &head);
            return sheet.note("not measured: no Adult data; set VEILSTREAM_DATA to the folder that holds adult/");
        }
        (false, _) => {
            let columns = ["age", "education", "race", "sex"];
            let (quasi, rows) = people(&columns, effort.people);
            ("made-up people", Table::new(policy(quasi, &[], 2, 0.0, Loss::Glm), &[], &columns, texts(&rows)))
        }
    };
    let mut sheet = Sheet::new(format!("subtree-bottom-up against the full-domain optimum (glm), {title}"), &head);
    for limit in LIMITS {
        for k in [2, 5, 10, 20, 50, 100] {
            let mut policy = table.policy.clone();
            (policy.criteria, policy.suppression) = (vec![Criterion::KAnonymity(K(k))], SuppressionLimit(limit));
            let rules = Rules::new(&policy);
            let run = |search: &dyn Search| {
                let evaluator = Evaluator::new(&policy, &rules, table.sets.clone());
                let rng = &mut ChaCha8Rng::seed_from_u64(1);
                let best = search.run(&policy.lattice(), &evaluator, &Budget::unlimited(), rng).best;
                (best.map_or(1.0, |best| best.evaluation.loss), evaluator.checks())
            };
            let (optimum, printed) = (run(&Optimal).0, run(&SubtreeBottomUp { from: None, refine: false }).0);
            let (refined, checks) = run(&SubtreeBottomUp::default());
            let reached = Some(refined <= optimum + 1e-9);
            let losses = [optimum, printed, refined].map(|loss| format!("{loss:.4}"));
            let cells = [k.to_string(), format!("{limit}")].into_iter().chain(losses).chain([checks.to_string()]);
            sheet.row(cells.chain([verdict(reached)]), reached);
        }
    }
    sheet
}
