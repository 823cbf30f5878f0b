//! The tables of the papers in a short form: the modules of `cargo bench --bench papers`, on small tables and few seeds. Every table
//! is complete, every figure that is exact is the paper's, and none is said to be reached that was not compared.
#![allow(unreachable_pub, dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::type_complexity)]

#[path = "common/adult.rs"]
mod adult;
#[path = "../benches/papers/cuts.rs"]
mod cuts;
#[path = "../benches/papers/data.rs"]
mod data;
#[path = "common/fixture.rs"]
mod fixture;
#[path = "../benches/papers/granulation.rs"]
mod granulation;
#[path = "../benches/papers/pbg.rs"]
mod pbg;
#[path = "../benches/papers/tabu.rs"]
mod tabu;
#[path = "../benches/papers/users.rs"]
mod users;

use data::{Effort, Sheet};

const SHORT: Effort = Effort { seeds: 3, most_k: 4, people: 1_500, orders: 3_000, adult: false };

/// The sheets of a module, complete, with so many rows each.
#[track_caller]
fn complete(sheets: Vec<Sheet>, rows: &[usize]) -> Vec<Sheet> {
    assert_eq!(sheets.iter().map(|sheet| sheet.rows.len()).collect::<Vec<_>>(), rows);
    for sheet in &sheets {
        for row in &sheet.rows {
            assert_eq!(row.len(), sheet.head.len(), "{sheet}");
            let is_figure = |cell: &String| !cell.is_empty() && !cell.contains("NaN") && !cell.contains("inf");
            assert!(row.iter().all(is_figure), "{sheet}");
        }
        let claims = sheet.rows.iter().flatten().any(|cell| cell == "reached");
        assert!(!claims || sheet.reached.is_some(), "{sheet}");
    }
    sheets
}

/// Column by its name, as numbers.
fn figures(sheet: &Sheet, name: &str) -> Vec<f64> {
    let at = sheet.head.iter().position(|head| *head == name).unwrap();
    sheet.rows.iter().map(|row| row[at].parse().unwrap()).collect()
}

#[test]
fn property_based_generalizations() {
    let sheets = complete(pbg::sheets(&SHORT), &[11]);
    let sheet = &sheets[0];
    assert_eq!(sheet.reached, None, "nothing of another table is compared with the paper: {sheet}");
    assert!(figures(sheet, "RR").iter().all(|share| (0.5..=1.0).contains(share)), "{sheet}");
    assert!(figures(sheet, "CE").iter().all(|error| (0.0..1.0).contains(error)), "{sheet}");
    let names: Vec<&str> = sheet.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names.iter().filter(|name| name.contains("boxes")).count(), 6, "{names:?}");
}

#[test]
fn bottom_up_generalization() {
    let sheets = complete(cuts::sheets(&SHORT), &[5, 2, 18]);
    assert!(sheets.iter().all(|sheet| sheet.reached == Some(true)), "{}{}{}", sheets[0], sheets[1], sheets[2]);
}

#[test]
fn user_oriented_anonymization() {
    let sheets = complete(users::sheets(&SHORT), &[6, 2]);
    assert_eq!(sheets[0].reached, Some(true), "{}", sheets[0]);
    for row in &sheets[1].rows {
        let score = |cell: &str| cell.split(',').next().unwrap().parse::<u64>().unwrap();
        let extended = score(&row[8]);
        assert!([4, 6, 7].iter().all(|&other| extended >= score(&row[other])), "{}", sheets[1]);
    }
}

#[test]
fn granulation_of_eleven_people() {
    let sheets = complete(granulation::sheets(&SHORT), &[7]);
    assert_eq!(sheets[0].reached, Some(true), "{}", sheets[0]);
}

#[test]
fn tabu_search_in_a_genetic_algorithm() {
    let sheets = complete(tabu::sheets(&SHORT), &[4, 4]);
    for sheet in &sheets {
        assert_eq!(sheet.reached, None, "three seeds are not fifty: {sheet}");
        for search in ["tabu-ga", "genetic", "tabu"] {
            let pairs = figures(sheet, "optimum").into_iter().zip(figures(sheet, search));
            assert!(pairs.into_iter().all(|(optimum, mean)| mean >= optimum - 1.0), "{sheet}");
        }
    }
}
