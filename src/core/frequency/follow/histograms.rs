//! The histograms of one facet, class by class, kept up to date by changes.
//!
//! If the facet has few codes, each has a place in every class, so that a change finds it at once; otherwise a class lists the codes
//! that occur in it.

use smallvec::SmallVec;

use crate::frequency::set::FacetCounts;
use crate::model::counting::Histogram;
use crate::model::domain::Code;

/// Up to how many codes each has a place in every class. More places are mostly empty, and take memory; fewer make a change look for
/// its code.
const FEW: usize = 32;

/// Histograms by class.
#[derive(Debug)]
pub(crate) enum Histograms {
    /// By class and code.
    Flat {
        /// Places per class.
        width: usize,
        counts: Vec<u32>,
    },
    /// By class.
    Lists(Vec<Listed>),
}

/// Codes ascending, with their counts.
pub(crate) type Listed = (SmallVec<[Code; 4]>, SmallVec<[u32; 4]>);

impl Histograms {
    /// Those of some classes.
    pub(crate) fn of(facet: &FacetCounts) -> Self {
        let codes = facet.codes.iter().max().map_or(0, |&most| most as usize + 1);
        let classes = facet.starts.len() - 1;
        let mut histograms = match codes <= FEW {
            true => Self::Flat { width: codes, counts: vec![0; codes * classes] },
            false => Self::Lists(Vec::with_capacity(classes)),
        };
        for class in 0..classes {
            let (codes, own) = (&facet.codes[facet.range(class)], &facet.counts[facet.range(class)]);
            match &mut histograms {
                Self::Flat { width, counts } => {
                    let places = &mut counts[class * *width..(class + 1) * *width];
                    codes.iter().zip(own).for_each(|(&code, &count)| places[code as usize] = count);
                }
                Self::Lists(lists) => lists.push((codes.into(), own.into())),
            }
        }
        histograms
    }

    /// About how many bytes the histograms hold.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Flat { counts, .. } => size_of_val(counts.as_slice()),
            Self::Lists(lists) => lists.iter().map(|(codes, _)| size_of::<Listed>() + codes.len() * 8).sum(),
        }
    }

    /// Makes room for so many classes, and codes below `codes`.
    pub(crate) fn grow(&mut self, classes: usize, codes: usize) {
        match self {
            Self::Flat { width, counts } if codes <= *width => counts.resize(classes * *width, 0),
            Self::Flat { width, counts } => {
                let rows = counts.chunks(*(&*width).max(&1)).map(|places| {
                    let present = places.iter().enumerate().filter(|(_, count)| **count > 0);
                    present.map(|(code, &count)| (code as Code, count)).unzip()
                });
                let mut lists: Vec<Listed> = if *width == 0 { Vec::new() } else { rows.collect() };
                lists.resize(classes, Listed::default());
                *self = if codes <= FEW { Self::flat(codes, &lists) } else { Self::Lists(lists) };
            }
            Self::Lists(lists) => lists.resize(classes, Listed::default()),
        }
    }

    fn flat(width: usize, lists: &[Listed]) -> Self {
        let mut counts = vec![0; width * lists.len()];
        for ((codes, own), places) in lists.iter().zip(counts.chunks_mut(width.max(1))) {
            codes.iter().zip(own).for_each(|(&code, &count)| places[code as usize] = count);
        }
        Self::Flat { width, counts }
    }

    /// More or fewer of a code in a class.
    #[inline]
    pub(crate) fn change(&mut self, class: usize, code: Code, by: i32) {
        match self {
            Self::Flat { width, counts } => {
                let count = &mut counts[class * *width + code as usize];
                *count = count.wrapping_add_signed(by);
            }
            Self::Lists(lists) => change(&mut lists[class], code, by),
        }
    }

    /// Shows the histogram of a class.
    pub(crate) fn with<T>(&self, class: usize, see: impl FnOnce(Histogram<'_>) -> T) -> T {
        match self {
            Self::Flat { width, counts } => {
                // Whether a code occurs cannot be foreseen, so nothing branches on it: the next overwrites one that does not.
                let (mut codes, mut own, mut known) = ([0; FEW], [0; FEW], 0);
                for (code, &count) in counts[class * width..(class + 1) * width].iter().enumerate() {
                    (codes[known], own[known]) = (code as Code, count);
                    known += usize::from(count > 0);
                }
                see(Histogram { codes: &codes[..known], counts: &own[..known] })
            }
            Self::Lists(lists) => see(Histogram { codes: &lists[class].0, counts: &lists[class].1 }),
        }
    }
}

fn change((codes, counts): &mut Listed, code: Code, by: i32) {
    match codes.binary_search(&code) {
        Ok(at) => {
            counts[at] = counts[at].wrapping_add_signed(by);
            if counts[at] == 0 {
                codes.remove(at);
                counts.remove(at);
            }
        }
        Err(at) if by != 0 => {
            codes.insert(at, code);
            counts.insert(at, by.cast_unsigned());
        }
        Err(_) => {}
    }
}
