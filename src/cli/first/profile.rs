//! `veilstream profile`: the fields of a file or topic in figures, and how far they single people out.
//!
//! Prints names, kinds, counts and shares; never a value of a record.

use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::input::{FirstArgs, FirstInput};
use crate::cli::shared::{Failure, for_terminal, print};
use crate::profile::roles::percent;
use crate::profile::{Combination, ProposedRole, RoleProposal, SinglingOut, TableProfile, propose};

/// How many pairs and triples the table shows.
const SHOWN: usize = 5;

/// Shows what the fields of a file or topic are like and how far they single people out
///
/// Reads the input once. Per field: what its values are, how many records have none, how many values there are, and how far it
/// tells people apart. Distinction is the number of values by the number of records; separation is the share of pairs of records
/// that differ; alone is the share of people (records, without --subject) who are the only ones with their value. A missing value
/// counts as one value. The same for the pairs and triples of fields that single out the most. The role is a proposal with
/// its reason.
///
/// No value of a record is printed. Memory is bounded: figures that compare records are exact for up to 16 million cells; of a
/// larger input they are those of all records of a random part of the people, and the output says so.
#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileArgs {
    #[command(flatten)]
    input: FirstArgs,
    /// Print one JSON object, with all pairs and triples that were counted
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let input = args.input.read(0)?;
    let figures = Figures::of(&input.profile);
    match args.json {
        true => print(&figures.json(&input).to_string()),
        false => print(&for_terminal(&figures.text(&input, &args.input.name()), &std::io::stdout())),
    }
}

/// A profile in figures.
pub(super) struct Figures<'a> {
    profile: &'a TableProfile,
    /// Per field, by itself.
    alone: Vec<SinglingOut>,
    /// Per field, the proposed role.
    roles: Vec<RoleProposal>,
    combinations: Vec<Combination>,
    combined_rows: usize,
}

impl<'a> Figures<'a> {
    /// The proposed role of each field, without the rest.
    pub(super) fn roles_of(profile: &TableProfile) -> Vec<RoleProposal> {
        propose(profile, &profile.alone())
    }

    fn of(profile: &'a TableProfile) -> Self {
        let alone = profile.alone();
        let roles = propose(profile, &alone);
        let names_people = |role: &RoleProposal| matches!(role.role, ProposedRole::Subject | ProposedRole::Identifier);
        let identifiers: Vec<bool> = roles.iter().map(names_people).collect();
        let (combinations, combined_rows) = profile.combinations(&alone, &identifiers);
        Self { profile, alone, roles, combinations, combined_rows }
    }

    /// The number of distinct values of a field, and whether it is exact.
    fn distinct(&self, field: usize) -> (u64, bool) {
        match self.profile.whole() {
            true => (self.alone[field].distinct, true),
            false => self.profile.columns[field].distinct(),
        }
    }

    fn measure(measure: &SinglingOut) -> Value {
        json!({
            "distinct": measure.distinct,
            "distinction": measure.distinction,
            "separation": measure.separation,
            "uniqueness": measure.uniqueness,
        })
    }

    fn json(&self, input: &FirstInput) -> Value {
        let field = |field: usize| {
            let (column, (distinct, exact)) = (&self.profile.columns[field], self.distinct(field));
            let mut object = Self::measure(&self.alone[field]);
            object["field"] = json!(self.profile.names[field]);
            object["type"] = json!(self.profile.kind(field).as_str());
            object["missing"] = json!(column.missing);
            object["distinct"] = json!(distinct);
            object["distinct_is_exact"] = json!(exact);
            object["role"] = json!(self.roles[field].role.as_str());
            object["reason"] = json!(self.roles[field].reason);
            object
        };
        let combination = |found: &Combination| {
            let mut object = Self::measure(&found.measure);
            object["fields"] = found.fields.iter().map(|field| json!(self.profile.names[*field])).collect();
            object
        };
        json!({
            "records": self.profile.records,
            "unreadable": self.profile.rejected,
            "older_records_left_out": input.left_out,
            "subject": self.profile.subject.map(|field| &self.profile.names[field]),
            "people": self.profile.people(),
            "sampled": !self.profile.whole(),
            "rows_compared": self.profile.rows(),
            "rows_combined": self.combined_rows,
            "fields": (0..self.profile.names.len()).map(field).collect::<Vec<_>>(),
            "quasi_identifiers_together": Self::measure(&self.profile.together(&self.quasi())),
            "combinations": self.combinations.iter().map(combination).collect::<Vec<_>>(),
        })
    }

    fn text(&self, input: &FirstInput, name: &str) -> String {
        let people = match self.profile.subject {
            Some(field) => format!(" of {} people by `{}`", self.profile.people(), self.profile.names[field]),
            None => String::new(),
        };
        let mut text =
            format!("{name}: {} records{people}, {} fields\n", self.profile.records, self.profile.names.len());
        if self.profile.rejected > 0 {
            text.push_str(&format!("{} records cannot be read and are not counted\n", self.profile.rejected));
        }
        if input.left_out {
            text.push_str("older records of the topic were not read: see --records\n");
        }
        if !self.profile.whole() {
            text.push_str(&format!(
                "large input: what compares records is counted on {} records of a random part of the people, who look more alone \
                 there than they are; ~ is an estimate\n",
                self.profile.rows()
            ));
        }
        text.push_str(&format!("\n{}\n", self.fields()));
        text.push_str(&self.combined());
        text.push_str(&self.together());
        text.push_str("\nWhy:\n");
        for (name, role) in self.profile.names.iter().zip(&self.roles) {
            text.push_str(&format!("  {name}: {}, {}\n", role.role.as_str(), role.reason));
        }
        let guessed = self.roles.iter().position(|role| role.role == ProposedRole::Subject);
        if let (None, Some(field)) = (self.profile.subject, guessed) {
            let name = &self.profile.names[field];
            text.push_str(&format!(
                "\nEvery record counts as a person here; --subject {name} counts people by `{name}`\n"
            ));
        }
        text.push_str(
            "\ndistinction: values by records; separation: pairs of records that differ; alone: people who are the only ones with \
             their value",
        );
        text
    }

    fn fields(&self) -> Table {
        let mut table = table(["field", "type", "missing", "distinct", "distinction", "separation", "alone", "role"]);
        for (field, name) in self.profile.names.iter().enumerate() {
            let (column, measure, (distinct, exact)) =
                (&self.profile.columns[field], &self.alone[field], self.distinct(field));
            table.add_row([
                name.clone(),
                self.profile.kind(field).as_str().into(),
                percent(column.missing as f64 / (column.missing + column.present).max(1) as f64),
                format!("{}{distinct}", if exact { "" } else { "~" }),
                format!("{:.4}", measure.distinction),
                format!("{:.4}", measure.separation),
                percent(measure.uniqueness),
                self.roles[field].role.as_str().into(),
            ]);
        }
        (2..=6).for_each(|column| align_right(&mut table, column));
        table
    }

    /// What the proposed quasi-identifiers single out together.
    fn together(&self) -> String {
        let quasi = self.quasi();
        let names: Vec<&str> = quasi.iter().map(|field| self.profile.names[*field].as_str()).collect();
        match quasi.len() {
            0 | 1 => String::new(),
            some => format!(
                "\nAll {some} quasi-identifiers together: {} are alone ({})\n",
                percent(self.profile.together(&quasi).uniqueness),
                names.join(", ")
            ),
        }
    }

    fn quasi(&self) -> Vec<usize> {
        (0..self.roles.len()).filter(|field| self.roles[*field].role == ProposedRole::Quasi).collect()
    }

    fn combined(&self) -> String {
        let mut text = String::new();
        for (size, title) in [(2, "Pairs"), (3, "Triples")] {
            let found: Vec<&Combination> =
                self.combinations.iter().filter(|found| found.fields.len() == size).collect();
            if found.is_empty() {
                continue;
            }
            let mut table = table(["fields", "distinct", "distinction", "separation", "alone"]);
            for Combination { fields, measure } in found.iter().take(SHOWN) {
                let names: Vec<&str> = fields.iter().map(|field| self.profile.names[*field].as_str()).collect();
                table.add_row([
                    names.join(", "),
                    measure.distinct.to_string(),
                    format!("{:.4}", measure.distinction),
                    format!("{:.4}", measure.separation),
                    percent(measure.uniqueness),
                ]);
            }
            (1..=4).for_each(|column| align_right(&mut table, column));
            text.push_str(&format!("\n{title} that single out the most, of {}", found.len()));
            if self.combined_rows < self.profile.rows() {
                text.push_str(&format!(", counted on {} records", self.combined_rows));
            }
            text.push_str(&format!(":\n{table}\n"));
        }
        text
    }
}

/// A plain table.
pub(super) fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head);
    table
}

fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
