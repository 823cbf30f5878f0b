//! The lattice: the finest node at the bottom, the coarsest on top. Small ones node by node, large ones by height and loss.

use plotters::prelude::*;

use super::{
    Area, BLUE, Caption, GREY, GRID, INK, LABEL, Link, PALE_BLUE, PlotError, RED, WIDTH, count, failed, picture,
};

/// The room of one height when every node is drawn.
const ROW: u32 = 40;
/// Lattices up to this many nodes show which generalizes which; with more the lines hide the nodes.
const MAX_WITH_EDGES: usize = 40;
/// The most room between two nodes of a row.
const MAX_GAP: i32 = 40;
/// How far from a node its words appear. Larger ones cover each other; smaller ones are missed.
const TIP: i32 = 8;
/// Room for the heights at the left.
const LEFT: i32 = 56;

/// The knowledge about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It meets the policy, and was counted.
    Satisfies,
    /// It must meet the policy, by a node that was counted.
    MustSatisfy,
    /// It was counted and does not.
    Fails,
    /// It cannot, by a node that was counted.
    MustFail,
    /// Nothing is known.
    Unchecked,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    /// Its levels.
    pub levels: Vec<u8>,
    /// The knowledge about it.
    pub mark: Mark,
    /// Its loss, or what it costs at least: orders a row from the left.
    pub loss: f64,
    /// Its description, for readers who point at it.
    pub said: String,
    /// True for the node of the release.
    pub chosen: bool,
}

/// Every node as a dot; `ordered` if levels that are one apart generalize each other, so that lines may say so.
///
/// # Errors
/// If there is none.
pub(crate) fn dots(caption: &Caption, dots: &[Dot], ordered: bool) -> Result<String, PlotError> {
    let height = |dot: &Dot| dot.levels.iter().map(|&l| usize::from(l)).sum::<usize>();
    let (Some(low), Some(high)) = (dots.iter().map(height).min(), dots.iter().map(height).max()) else {
        return Err(PlotError("it takes a node".into()));
    };
    let rows = high - low + 1;
    picture(caption, (WIDTH, ROW * rows as u32 + 8), |area| {
        let mut by_row: Vec<Vec<&Dot>> = vec![Vec::new(); rows];
        dots.iter().for_each(|dot| by_row[height(dot) - low].push(dot));
        let mut places: Vec<(&Dot, (i32, i32))> = Vec::with_capacity(dots.len());
        for (row, members) in by_row.iter_mut().enumerate() {
            members.sort_by(|a, b| a.loss.total_cmp(&b.loss).then_with(|| a.levels.cmp(&b.levels)));
            let y = (ROW * (rows - 1 - row) as u32 + ROW / 2) as i32 + 4;
            let room = WIDTH as i32 - LEFT - 12;
            let gap = (room / members.len().max(1) as i32).clamp(1, MAX_GAP);
            let start = LEFT + (room - gap * (members.len() as i32 - 1)) / 2;
            places.extend(members.iter().enumerate().map(|(i, dot)| (*dot, (start + gap * i as i32, y))));
            let style = LABEL.into_font().color(&INK);
            area.draw(&Text::new((low + row).to_string(), (8, y - 8), style)).map_err(failed)?;
        }
        if ordered && dots.len() <= MAX_WITH_EDGES {
            edges(&places, area)?;
        }
        places.sort_by_key(|(dot, _)| dot.chosen);
        places.iter().try_for_each(|(dot, at)| draw(dot, *at, area))?;
        Ok(places.iter().map(|(dot, at)| Link { at: *at, to: None, label: dot.said.clone(), radius: TIP }).collect())
    })
}

fn edges(places: &[(&Dot, (i32, i32))], area: &Area<'_>) -> Result<(), PlotError> {
    for (a, from) in places {
        for (b, to) in places {
            let up: i32 = a.levels.iter().zip(&b.levels).map(|(a, b)| i32::from(*b) - i32::from(*a)).sum();
            if up == 1 && a.levels.iter().zip(&b.levels).all(|(a, b)| a <= b) {
                area.draw(&PathElement::new([*from, *to], GRID.stroke_width(1))).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Filled: meets the policy. Hollow: does not. Large: counted. A ring: chosen. A speck: nothing is known.
fn draw(dot: &Dot, at: (i32, i32), area: &Area<'_>) -> Result<(), PlotError> {
    match dot.mark {
        Mark::Satisfies => area.draw(&Circle::new(at, 6, BLUE.filled())),
        Mark::MustSatisfy => area.draw(&Circle::new(at, 4, PALE_BLUE.filled())),
        Mark::Fails => area.draw(&Circle::new(at, 6, GREY.stroke_width(2))),
        Mark::MustFail => area.draw(&Circle::new(at, 3, GREY.stroke_width(1))),
        Mark::Unchecked => area.draw(&Circle::new(at, 1, GREY.filled())),
    }
    .map_err(failed)?;
    if dot.chosen {
        area.draw(&Circle::new(at, 11, RED.stroke_width(3))).map_err(failed)?;
    }
    Ok(())
}

/// One cell of a large lattice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LatticeCell {
    /// Counted nodes that meet the policy.
    pub satisfying: u64,
    /// Counted nodes that do not.
    pub failing: u64,
    /// True if the node of the release is in it.
    pub chosen: bool,
}

/// The room of one height when cells are drawn.
const CELL_ROW: u32 = 22;
/// Room for the number of nodes that nobody counted.
const UNCHECKED: i32 = 110;

/// One cell per height and loss band. For each height, lowest first: its cells by rising loss, and how many nodes nobody
/// counted.
///
/// # Errors
/// If there is no cell.
pub(crate) fn cells(caption: &Caption, heights: &[(Vec<LatticeCell>, u128)]) -> Result<String, PlotError> {
    let bands = heights.first().map_or(0, |(cells, _)| cells.len());
    if bands == 0 {
        return Err(PlotError("it takes a cell".into()));
    }
    let size = (WIDTH, CELL_ROW * (heights.len() as u32 + 2));
    picture(caption, size, |area| {
        let style = LABEL.into_font().color(&INK);
        let text = |text: String, at: (i32, i32)| area.draw(&Text::new(text, at, style.clone())).map_err(failed);
        let room = WIDTH as i32 - LEFT - UNCHECKED;
        text("height".into(), (4, 2))?;
        text("loss, from little to much".into(), (LEFT, 2))?;
        text("not counted".into(), (WIDTH as i32 - UNCHECKED + 12, 2))?;
        let most = heights.iter().flat_map(|(cells, _)| cells).map(|c| c.satisfying.max(c.failing)).max().unwrap_or(1);
        for (height, (cells, unchecked)) in heights.iter().enumerate() {
            let y = (CELL_ROW * (heights.len() - height) as u32) as i32 + 4;
            text(height.to_string(), (8, y))?;
            for (band, cell) in cells.iter().enumerate() {
                let left = LEFT + room * band as i32 / bands as i32;
                let right = LEFT + room * (band as i32 + 1) / bands as i32 - 3;
                draw_cell(cell, (left, right, y), most, area)?;
            }
            text(count(*unchecked as f64), (WIDTH as i32 - UNCHECKED + 12, y))?;
        }
        Ok(Vec::new())
    })
}

/// The left part shows how many meet the policy, the right part how many do not, on a scale by magnitude.
fn draw_cell(
    cell: &LatticeCell,
    (left, right, y): (i32, i32, i32),
    most: u64,
    area: &Area<'_>,
) -> Result<(), PlotError> {
    let (top, bottom) = (y, y + CELL_ROW as i32 - 4);
    area.draw(&Rectangle::new([(left, top), (right, bottom)], GRID.filled())).map_err(failed)?;
    let middle = (left + right) / 2;
    let magnitude = |n: u64| ((n as f64 + 1.0).log2() / (most as f64 + 1.0).log2()).min(1.0);
    for (n, from, to, colour) in [(cell.satisfying, left, middle, BLUE), (cell.failing, middle, right, GREY)] {
        if n > 0 {
            let high = 3 + (f64::from(bottom - top - 3) * magnitude(n)) as i32;
            let part = Rectangle::new([(from, bottom - high), (to, bottom)], colour.filled());
            area.draw(&part).map_err(failed)?;
        }
    }
    if cell.chosen {
        let ring = Rectangle::new([(left - 1, top - 1), (right + 1, bottom + 1)], RED.stroke_width(3));
        area.draw(&ring).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caption() -> Caption {
        Caption { id: "lattice".into(), title: "Lattice".into(), description: "Nodes.".into() }
    }

    #[test]
    fn every_node_is_a_dot_and_the_choice_has_a_ring() {
        let marks = [Mark::Satisfies, Mark::MustSatisfy, Mark::Fails, Mark::MustFail, Mark::Unchecked];
        let dot = |(i, mark): (usize, &Mark)| Dot {
            levels: vec![i as u8, 1],
            mark: *mark,
            loss: i as f64,
            said: format!("node <{i}>"),
            chosen: *mark == Mark::Satisfies,
        };
        let all: Vec<Dot> = marks.iter().enumerate().map(dot).collect();
        let text = dots(&caption(), &all, true).unwrap();
        assert_eq!(text.matches("<circle").count(), 11, "five dots, one ring, five places to point at");
        assert!(text.contains("<title>node &lt;3&gt;</title>") && text.contains("role=\"img\""));
        assert_eq!(text.matches("<polyline").count(), 4, "each generalizes the one before");
        assert!(dots(&caption(), &[], true).is_err());
    }

    #[test]
    fn large_lattices_have_a_cell_per_height_and_band() {
        let mut rows = vec![(vec![LatticeCell::default(); 10], 7u128); 3];
        rows[1].0[4] = LatticeCell { satisfying: 3, failing: 900, chosen: true };
        let text = cells(&caption(), &rows).unwrap();
        // 30 cells, two parts, one ring.
        assert_eq!(text.matches("<rect").count(), 33);
        assert!(text.contains("not counted"));
        assert!(cells(&caption(), &[]).is_err());
    }
}
