//! The result of `verify`, as text and as one JSON object.

use serde_json::{Map, Value as Json, json};

use crate::gate::{Refusal, Release};
use crate::model::policy::Policy;
use crate::privacy::Rules;

/// The number of failing releases that are described. More scroll the first ones away; fewer hide what they have in common.
const MAX_DESCRIBED: usize = 20;

/// The gate's result for one release.
pub(super) struct ReleaseVerdict {
    /// Its name; none if the file is one release.
    pub(super) release: Option<String>,
    pub(super) records: usize,
    pub(super) outcome: Result<Release, Refusal>,
}

/// The gate's results for a file.
pub(super) struct FileReport<'a> {
    pub(super) file: String,
    pub(super) policy: &'a Policy,
    pub(super) rules: &'a Rules,
    pub(super) verdicts: Vec<ReleaseVerdict>,
}

/// The worst value of one criterion.
struct Worst<'a> {
    criterion: String,
    achieved: f64,
    required: f64,
    release: Option<&'a str>,
}

impl FileReport<'_> {
    /// True if every release satisfies the policy.
    pub(super) fn satisfies(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.outcome.is_ok())
    }

    /// The text for a file that satisfies the policy.
    pub(super) fn passed(&self) -> String {
        let releases = if self.is_one() { String::new() } else { format!("{}, ", self.releases()) };
        let mut text = format!(
            "{} satisfies the policy: {releases}{} records in {} classes, the smallest of {}",
            self.file,
            self.records(),
            self.classes(),
            self.k_achieved().unwrap_or(0),
        );
        if self.is_one() {
            text.push_str("; counted as one release");
        }
        if self.policy.schema.subject.is_some() {
            text.push_str("; counted in records, because the subject is not in the file");
        }
        text + &self.figures()
    }

    /// The text for a file that does not.
    pub(super) fn refused(&self) -> String {
        let mut text = format!("{} does not satisfy the policy: ", self.file);
        let failed: Vec<(&ReleaseVerdict, &Refusal)> =
            self.verdicts.iter().filter_map(|v| v.outcome.as_ref().err().map(|refusal| (v, refusal))).collect();
        if !self.is_one() {
            text.push_str(&format!("{} of {} fail", failed.len(), self.releases()));
        }
        for (verdict, refusal) in failed.iter().take(MAX_DESCRIBED) {
            if let Some(release) = &verdict.release {
                text.push_str(&format!("\n  release {release}: "));
            }
            let class: Vec<String> = self.class(refusal).map(|(name, label)| format!("{name} = {label}")).collect();
            text.push_str(&format!(
                "{} is not met\n  class: {}\n  size: {} records, reaches {}, {} required",
                refusal.criterion,
                class.join(", "),
                refusal.size,
                refusal.achieved,
                refusal.required,
            ));
        }
        match failed.len().saturating_sub(MAX_DESCRIBED) {
            0 => {}
            more => text.push_str(&format!("\n  and {more} more")),
        }
        if self.is_one() {
            return text + "\n  counted as one release";
        }
        text + "\n  worst figures:" + &self.figures().replace("\n  ", "\n    ")
    }

    /// The JSON object for scripts.
    pub(super) fn json(&self) -> String {
        let mut object = json!({"satisfies": self.satisfies(), "counted": "records", "records": self.records()});
        let parts: Vec<Json> = self.verdicts.iter().map(|verdict| self.part(verdict)).collect();
        match parts.as_slice() {
            [part] if self.is_one() => merge(&mut object, part.clone()),
            _ => {
                let worst = |worst: Worst<'_>| {
                    json!({"criterion": worst.criterion, "required": worst.required, "achieved": worst.achieved,
                        "release_id": worst.release})
                };
                let criteria: Vec<Json> = self.worst().into_iter().map(worst).collect();
                merge(&mut object, json!({"criteria": criteria, "releases": parts}));
                if self.satisfies() {
                    merge(&mut object, json!({"classes": self.classes(), "k_achieved": self.k_achieved()}));
                }
            }
        }
        object.to_string()
    }

    /// One release as JSON.
    fn part(&self, verdict: &ReleaseVerdict) -> Json {
        let mut part = match &verdict.outcome {
            Ok(release) => {
                let manifest = release.manifest();
                json!({"satisfies": true, "classes": manifest.classes, "k_achieved": manifest.k_achieved,
                    "criteria": manifest.criteria})
            }
            Err(refusal) => {
                let class: Map<String, Json> =
                    self.class(refusal).map(|(name, label)| (name.to_owned(), json!(label))).collect();
                json!({"satisfies": false, "criterion": refusal.criterion, "class": class, "size": refusal.size,
                    "achieved": refusal.achieved, "required": refusal.required})
            }
        };
        merge(&mut part, json!({"records": verdict.records}));
        if let Some(release) = &verdict.release {
            merge(&mut part, json!({"release_id": release}));
        }
        part
    }

    fn class<'r>(&'r self, refusal: &'r Refusal) -> impl Iterator<Item = (&'r str, &'r str)> {
        self.policy.quasi.iter().zip(refusal.class()).map(|(quasi, label)| (&*quasi.name, label.as_str()))
    }

    /// True if the file is one release.
    fn is_one(&self) -> bool {
        matches!(self.verdicts.as_slice(), [ReleaseVerdict { release: None, .. }])
    }

    fn releases(&self) -> String {
        let releases = self.verdicts.len();
        format!("{releases} release{}", if releases == 1 { "" } else { "s" })
    }

    fn records(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.records).sum()
    }

    fn passes(&self) -> impl Iterator<Item = (&ReleaseVerdict, &Release)> {
        self.verdicts.iter().filter_map(|verdict| verdict.outcome.as_ref().ok().map(|release| (verdict, release)))
    }

    fn classes(&self) -> u64 {
        self.passes().map(|(_, release)| release.manifest().classes).sum()
    }

    fn k_achieved(&self) -> Option<u32> {
        self.passes().filter_map(|(_, release)| release.manifest().k_achieved).min()
    }

    /// The worst value of every criterion. Of a failing release only the value of the failed criterion is known.
    fn worst(&self) -> Vec<Worst<'_>> {
        let mut list = Vec::new();
        for (i, rule) in self.rules.iter().enumerate() {
            let mut worst: Option<Worst<'_>> = None;
            for verdict in &self.verdicts {
                let achieved = match &verdict.outcome {
                    Ok(release) => release.manifest().criteria[i].achieved,
                    Err(refusal) => (refusal.criterion == rule.name()).then_some(refusal.achieved),
                };
                let Some(achieved) = achieved else { continue };
                if worst
                    .as_ref()
                    .is_none_or(|w| w.achieved != achieved && rule.weaker(w.achieved, achieved) == achieved)
                {
                    let (criterion, required) = (rule.name(), rule.required());
                    worst = Some(Worst { criterion, achieved, required, release: verdict.release.as_deref() });
                }
            }
            list.extend(worst);
        }
        list
    }

    fn figures(&self) -> String {
        let line = |worst: Worst<'_>| {
            let release = worst.release.map_or(String::new(), |release| format!(", in release {release}"));
            format!("\n  {}: {}, {} required{release}", worst.criterion, worst.achieved, worst.required)
        };
        self.worst().into_iter().map(line).collect()
    }
}

fn merge(object: &mut Json, more: Json) {
    if let (Json::Object(object), Json::Object(more)) = (object, more) {
        object.extend(more);
    }
}
