//! A hierarchy that fits a field: an ARX file that lies beside the input, dates, intervals with round bounds, codes by prefix,
//! groups by frequency, or the value and nothing.
//!
//! What is proposed is written into a policy, so no value of it may be rare: bounds of intervals lie where enough values lie
//! beyond, and are rounded outward; groups list values that enough people share, and every other value is published as the top.

use std::path::{Path, PathBuf};

use super::column::{FieldKind, FieldValues, Notations};
use super::intake::TableProfile;
use super::names;
use crate::model::hierarchy::Hierarchy;

/// The most values of a domain that is written out as groups.
const MOST_GROUPED: usize = 60;
/// Up to this many values, the value or nothing is as good as groups.
const FEW: usize = 5;
/// A list of values fits if this share of the records has one of them.
const COVERED: f64 = 0.98;
/// From this share on, a value stands by itself among the groups.
const FREQUENT: f64 = 0.05;

/// Words in the names of latitudes, each with those of the longitude beside it.
const DEGREES: [(&str, &[&str]); 3] =
    [("latitude", &["longitude"]), ("breitengrad", &["längengrad", "laengengrad"]), ("lat", &["lon", "lng", "long"])];

/// Cells of 153 m. Longer: homes. Shorter: places lose their use before they must.
const LONGEST_GEOHASH: u32 = 7;

/// How a field generalizes, as it is written in the configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HierarchyProposal {
    /// A file in ARX's format.
    File(PathBuf),
    /// Dates.
    Dates(Notations),
    /// Numbers: three widths, the smallest and the largest bound.
    Intervals {
        /// From fine to coarse.
        widths: [f64; 3],
        /// The lower bound.
        min: f64,
        /// The upper bound.
        max: f64,
        /// True if the numbers are written with a comma before the fraction.
        comma: bool,
    },
    /// Codes.
    Prefix {
        /// In characters.
        length: u32,
        /// The least length, if they have several.
        min_length: Option<u32>,
        /// True if they have digits only.
        digits: bool,
    },
    /// Addresses of the internet.
    Ip,
    /// Places, as exact as geohashes of this length.
    Geohash(u32),
    /// A place that is made of this field, a latitude, and another one.
    Coordinates {
        /// Of the place: no field of the input.
        name: String,
        /// The other field.
        longitude: String,
    },
    /// The longitude of the place with this name.
    Longitude(String),
    /// Frequent values by themselves, and the others together.
    Groups {
        /// Values of which each stands for itself.
        frequent: Vec<String>,
        /// Values that become `other`.
        others: Vec<String>,
    },
    /// The value or nothing.
    Trivial,
}

impl HierarchyProposal {
    /// What it does, in a few words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::File(path) => format!("the hierarchy in {}", path.display()),
            Self::Dates(notations) if notations.are_usual() => "by day, month, year, decade".into(),
            Self::Dates(notations) => {
                let formats: Vec<&str> = notations.formats().collect();
                format!("by day, month, year, decade; written as {}", formats.join(" or "))
            }
            Self::Intervals { widths: [a, b, c], .. } => format!("in steps of {a}, {b} and {c}"),
            Self::Prefix { length, min_length: None, .. } => {
                format!("codes of {length} characters, masked from the end")
            }
            Self::Prefix { length, min_length: Some(least), .. } => {
                format!("codes of {least} to {length} characters, masked from the end")
            }
            Self::Ip => "by network, from small to large".into(),
            Self::Geohash(_) => "by cells on the map, from small to large".into(),
            Self::Coordinates { name, longitude } => {
                format!("with {longitude} the place {name}, by cells on the map, from small to large")
            }
            Self::Longitude(name) => format!("part of {name}"),
            Self::Groups { frequent, others } => match frequent.len() {
                1 => format!("1 frequent value by itself, {} others together", others.len()),
                more => format!("{more} frequent values by themselves, {} others together", others.len()),
            },
            Self::Trivial => "the value, or nothing".into(),
        }
    }
}

/// What a value must have to be written into a policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    /// By so many people.
    pub(crate) least: u64,
    /// The field that says whose a record is.
    pub(crate) subject: Option<usize>,
}

/// The hierarchy for one field. `beside` is the folder of the input.
pub(crate) fn fitting(
    profile: &TableProfile,
    field: usize,
    beside: Option<&Path>,
    shared: Shared,
) -> HierarchyProposal {
    let (name, column) = (&profile.names[field], &profile.columns[field]);
    if let Some(file) = beside.and_then(|folder| arx_file(folder, name, profile, field)) {
        return HierarchyProposal::File(file);
    }
    match profile.kind(field) {
        FieldKind::Date(notations) => HierarchyProposal::Dates(notations),
        FieldKind::Ip => HierarchyProposal::Ip,
        FieldKind::Place => HierarchyProposal::Geohash(LONGEST_GEOHASH),
        FieldKind::Code { length, min_length: None, digits: false }
            if length >= 3 && names::find(&names::words(name), "geohash").is_some() =>
        {
            HierarchyProposal::Geohash(length.min(LONGEST_GEOHASH))
        }
        FieldKind::Code { length, min_length, digits } => HierarchyProposal::Prefix { length, min_length, digits },
        FieldKind::Integer | FieldKind::Number { .. } => match column.code_length() {
            // Postal codes without leading zeros are numbers of one length.
            Some(length) if length >= 3 && is_code(name) => {
                HierarchyProposal::Prefix { length, min_length: None, digits: true }
            }
            _ => intervals(profile, field).unwrap_or(HierarchyProposal::Trivial),
        },
        _ => groups(profile, field, shared).unwrap_or(HierarchyProposal::Trivial),
    }
}

/// The pairs of fields that are latitude and longitude of one place, by name and by values, with a name for the place.
pub(crate) fn coordinates(profile: &TableProfile) -> Vec<(usize, usize, String)> {
    let degrees = |field: usize, most: f64| {
        let column = &profile.columns[field];
        profile.kind(field).is_number() && column.bounds().is_some_and(|(low, high)| -most <= low && high <= most)
    };
    let lower: Vec<String> = profile.names.iter().map(|name| name.to_lowercase()).collect();
    let mut pairs = Vec::new();
    for latitude in (0..lower.len()).filter(|field| degrees(*field, 90.0)) {
        let leaf = lower[latitude].rfind('.').map_or(0, |dot| dot + 1);
        let word =
            DEGREES.iter().find_map(|(word, others)| Some((leaf + lower[latitude][leaf..].find(word)?, word, others)));
        let Some((at, word, others)) = word else { continue };
        let named = |name: &str, other: &str| [&name[..at], other, &name[at + word.len()..]].concat();
        let longitude = (0..lower.len()).find(|field| {
            degrees(*field, 180.0) && others.iter().any(|other| lower[*field] == named(&lower[latitude], other))
        });
        // Letters that are longer in small: the name is not taken apart.
        let whole = &profile.names[latitude];
        let (Some(longitude), true) = (longitude, whole.len() == lower[latitude].len() && whole.is_char_boundary(at))
        else {
            continue;
        };
        let inside = |name: &str| {
            lower
                .iter()
                .any(|known| known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
        };
        let name =
            ["cell", "geohash"].map(|word| named(whole, word)).into_iter().find(|name| !inside(&name.to_lowercase()));
        pairs.extend(name.map(|name| (latitude, longitude, name)));
    }
    pairs
}

fn is_code(name: &str) -> bool {
    let leaf = names::parts(name).into_iter().next().unwrap_or_default();
    names::find(&leaf, "zip zipcode postal postcode postalcode plz code cell").is_some()
}

/// `NAME.csv`, `hierarchy_NAME.csv` or `..._hierarchy_NAME.csv`, in the folder or in `hierarchies/`, if it is a hierarchy that has
/// the field's frequent values.
fn arx_file(folder: &Path, name: &str, profile: &TableProfile, field: usize) -> Option<PathBuf> {
    // A name is no path.
    if name.contains(['/', '\\', '\0']) {
        return None;
    }
    let plain = format!("{name}.csv");
    let suffix = format!("hierarchy_{name}.csv");
    for folder in [folder.to_owned(), folder.join("hierarchies")] {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|f| f.path()).collect();
        files.sort();
        let called = |path: &PathBuf| {
            path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file == plain || file.ends_with(&suffix))
        };
        let fits = |path: &PathBuf| {
            let hierarchy = std::fs::read(path).ok().and_then(|bytes| Hierarchy::parse_csv(&bytes).ok());
            hierarchy.is_some_and(|hierarchy| covers(&hierarchy, profile, field))
        };
        if let Some(file) = files.into_iter().filter(called).find(fits) {
            return Some(file.strip_prefix("./").map(Path::to_owned).unwrap_or(file));
        }
    }
    None
}

/// True if nearly all records have a value of the hierarchy, as far as the values are listed.
fn covers(hierarchy: &Hierarchy, profile: &TableProfile, field: usize) -> bool {
    let column = &profile.columns[field];
    let Some(listed) = column.listed() else { return true };
    let known: u64 =
        listed.iter().filter(|(value, _)| hierarchy.canonical(value).is_some()).map(|(_, records)| records).sum();
    known as f64 >= COVERED * column.present as f64
}

/// Steps of 1, 2 or 5 times a power of ten, about twenty of them, and bounds at multiples of the coarsest.
fn intervals(profile: &TableProfile, field: usize) -> Option<HierarchyProposal> {
    let column = &profile.columns[field];
    let words = names::words(&profile.names[field]);
    if words.last().is_some_and(|word| word == "age" || word == "alter") {
        return Some(HierarchyProposal::Intervals { widths: [5.0, 10.0, 20.0], min: 0.0, max: 120.0, comma: false });
    }
    // A field of few numbers is one of kinds or small counts: 0 and 1 need no steps.
    if alone_in_steps(column) {
        return None;
    }
    let (low, high) = column.bounds()?;
    let range = high - low;
    if !(range.is_finite() && range > 0.0) {
        return None;
    }
    let mut finest = round_step(range / 20.0);
    let kind = column.kind();
    if kind == FieldKind::Integer {
        finest = finest.max(2.0);
    }
    let coarsest = 4.0 * finest;
    // A multiple of 0.1 is not always written as one.
    let exact = |number: f64| (number * 1e9).round() / 1e9;
    let (min, max) = (exact((low / coarsest).floor() * coarsest), exact((high / coarsest).ceil() * coarsest));
    (max > min && max.abs() < 1e15 && finest >= 1e-6).then_some(HierarchyProposal::Intervals {
        widths: [finest, 2.0 * finest, coarsest].map(exact),
        min,
        max: if max - min < coarsest { exact(min + coarsest) } else { max },
        comma: kind == FieldKind::Number { comma: true },
    })
}

/// True if steps would hold nearly everything: at most [`FEW`] different numbers.
fn alone_in_steps(column: &FieldValues) -> bool {
    column.listed().is_some_and(|listed| listed.len() <= FEW)
}

/// The largest of 1, 2 and 5 times a power of ten that is not above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let digit = if step >= 5.0 * power {
        5.0
    } else if step >= 2.0 * power {
        2.0
    } else {
        1.0
    };
    digit * power
}

/// Groups by frequency for a small domain.
fn groups(profile: &TableProfile, field: usize, shared: Shared) -> Option<HierarchyProposal> {
    let values = profile.shared_values(field, shared.least, shared.subject)?;
    // A value that is not written is published as the top, so nearly all records must have one that is.
    let covered: f64 = values.iter().map(|(_, share)| share).sum();
    let fits = values.len() > FEW && values.len() <= MOST_GROUPED && covered >= COVERED;
    if !fits || values.iter().any(|(value, _)| value == "other") {
        return None;
    }
    let (frequent, others): (Vec<_>, Vec<_>) = values.into_iter().partition(|(_, share)| *share >= FREQUENT);
    let names = |values: Vec<(String, f64)>| values.into_iter().map(|(value, _)| value).collect::<Vec<_>>();
    (!frequent.is_empty() && others.len() > 1)
        .then(|| HierarchyProposal::Groups { frequent: names(frequent), others: names(others) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (step, round) in [(3.7, 2.0), (5.0, 5.0), (999.0, 500.0), (0.013, 0.01), (1.0, 1.0)] {
            assert!((round_step(step) - round).abs() < 1e-9, "{step}");
        }
    }
}
