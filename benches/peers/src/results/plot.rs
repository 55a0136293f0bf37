//! Results as SVG: horizontal bars at the medians, whiskers from the least to the greatest.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Row, Section, markdown, matrix};

/// Bars of one plot.
const MOST: usize = 48;
const BAR: i32 = 15;
const GAP: i32 = 6;
const LEFT: i32 = 290;
const WIDTH: i32 = 620;
const RIGHT: i32 = 150;
const TOP: i32 = 54;
/// From this ratio of the greatest to the least on the scale is logarithmic.
const WIDE: f64 = 20.0;

/// Bars that belong together.
struct Plot {
    title: String,
    /// A label for each group, and its rows.
    groups: Vec<(String, Vec<Row>)>,
    /// Whether bars are speeds, not times.
    speed: bool,
}

/// The file of a section's plot, beside its JSON.
pub fn file(section: &str, index: usize) -> String {
    format!("{section}-{}.svg", index + 1)
}

pub fn titles(section: &Section) -> Vec<String> {
    split(section).into_iter().map(|plot| plot.title).collect()
}

pub fn plots(section: &Section) -> Vec<String> {
    split(section).iter().map(Plot::draw).collect()
}

/// Cases one below the other, as many as one plot takes; those that are types by their output.
fn split(section: &Section) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    if matrix::is_of_ours(&section.found) {
        return plots; // a table of builds says more than hundreds of bars
    }
    for case in section.found.cases() {
        let rows: Vec<Row> = section.found.of(case).into_iter().cloned().collect();
        let speed = rows[0].more.contains_key(matrix::ELEMENTS);
        let (name, output) = case
            .rsplit_once(' ')
            .filter(|_| speed)
            .unwrap_or((case, ""));
        let of = if speed {
            format!(": 10⁹ elements/s to {output}")
        } else {
            String::new()
        };
        let title = format!("{}{of}", section.section);
        let group = (name.to_owned(), rows);
        let bars = |plot: &Plot| {
            plot.groups
                .iter()
                .map(|(_, rows)| rows.len())
                .sum::<usize>()
        };
        match plots
            .iter_mut()
            .rfind(|plot| plot.speed == speed && plot.title.starts_with(&title))
        {
            Some(plot) if bars(plot) + group.1.len() <= MOST => plot.groups.push(group),
            earlier => {
                let title = if earlier.is_some() {
                    format!("{title}, from {name} on")
                } else {
                    title
                };
                plots.push(Plot {
                    title,
                    groups: vec![group],
                    speed,
                });
            }
        }
    }
    plots
}

/// A colour of its own for each variant, ours the strongest.
fn colour(row: &Row, nth: usize) -> RGBColor {
    const OTHERS: [RGBColor; 6] = [
        RGBColor(132, 145, 158),
        RGBColor(86, 180, 233),
        RGBColor(230, 159, 0),
        RGBColor(0, 158, 115),
        RGBColor(204, 121, 167),
        RGBColor(213, 200, 80),
    ];
    if row.is_ours() {
        RGBColor(200, 60, 20)
    } else {
        OTHERS[nth % OTHERS.len()]
    }
}

impl Plot {
    /// Median, least and greatest of a row, in the plot's unit.
    fn values(&self, row: &Row) -> (f64, f64, f64) {
        let of = |ns: f64| {
            row.more
                .get(matrix::ELEMENTS)
                .map_or(ns, |elements| elements / ns)
        };
        if self.speed {
            (of(row.median), of(row.maximum), of(row.minimum))
        } else {
            (row.median, row.minimum, row.maximum)
        }
    }

    fn label(&self, value: f64) -> String {
        if self.speed {
            format!("{value:.2}")
        } else {
            markdown::time(value)
        }
    }

    fn draw(&self) -> String {
        let bars: i32 = self
            .groups
            .iter()
            .map(|(_, rows)| (rows.len() as i32 + 1) * BAR + GAP)
            .sum();
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + bars + 16);
        let all = || {
            self.groups
                .iter()
                .flat_map(|(_, rows)| rows)
                .map(|row| self.values(row))
        };
        let least = all()
            .map(|(_, least, _)| least)
            .fold(f64::MAX, f64::min)
            .max(1e-3);
        let greatest = all().map(|(.., greatest)| greatest).fold(least, f64::max);
        let log = greatest / least > WIDE;
        // a logarithmic bar begins below the least, so that every bar can be seen
        let from = 10_f64.powf(least.log10().floor());
        let place = |value: f64| {
            let part = if log {
                (value.max(from) / from).ln() / (greatest / from).ln().max(1e-9)
            } else {
                value / greatest
            };
            LEFT + (part.clamp(0.0, 1.0) * f64::from(WIDTH)) as i32
        };
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (width as u32, height as u32))
                .into_drawing_area();
            self.onto(&area, place, log)
                .expect("a string takes everything");
        }
        svg
    }

    fn onto<F: Fn(f64) -> i32>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        place: F,
        log: bool,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let text = |size: i32, at: HPos| {
            ("sans-serif", size)
                .into_font()
                .color(&BLACK)
                .pos(Pos::new(at, VPos::Center))
        };
        let fail =
            |e: DrawingAreaErrorKind<_>| -> Box<dyn std::error::Error> { format!("{e}").into() };
        area.fill(&WHITE).map_err(fail)?;
        area.draw_text(&self.title, &text(17, HPos::Left), (12, 18))
            .map_err(fail)?;
        let better = if self.speed {
            "longer is better"
        } else {
            "shorter is better"
        };
        let scale = if log { ", logarithmic scale" } else { "" };
        let hint = format!("{better}{scale}; bars are medians, whiskers least and greatest");
        area.draw_text(&hint, &text(12, HPos::Left), (12, 38))
            .map_err(fail)?;
        let mut y = TOP;
        for (name, rows) in &self.groups {
            area.draw_text(name, &text(13, HPos::Left), (12, y + BAR / 2))
                .map_err(fail)?;
            y += BAR;
            for (nth, row) in rows.iter().enumerate() {
                let (median, least, greatest) = self.values(row);
                let middle = y + BAR / 2;
                let bar = [(LEFT, y + 1), (place(median), y + BAR - 2)];
                area.draw_text(&row.variant, &text(12, HPos::Right), (LEFT - 8, middle))
                    .map_err(fail)?;
                area.draw(&Rectangle::new(bar, colour(row, nth).filled()))
                    .map_err(fail)?;
                let (from, to) = (place(least), place(greatest));
                for line in [
                    [(from, middle), (to, middle)],
                    [(from, middle - 3), (from, middle + 3)],
                    [(to, middle - 3), (to, middle + 3)],
                ] {
                    area.draw(&PathElement::new(line, BLACK)).map_err(fail)?;
                }
                let right = to.max(place(median)) + 6;
                area.draw_text(&self.label(median), &text(12, HPos::Left), (right, middle))
                    .map_err(fail)?;
                y += BAR;
            }
            y += GAP;
        }
        area.present().map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, machine::Run};

    #[test]
    fn every_case_and_variant_is_drawn() {
        let row = |case: usize, variant: &str| {
            Row::new(
                format!("case {case}"),
                variant.to_owned(),
                vec![1e6, 9e6, 3e6],
            )
        };
        let rows = (0..30)
            .flat_map(|case| [row(case, "ours"), row(case, "theirs")])
            .collect();
        let found = Outcome {
            rows,
            ..Outcome::default()
        };
        let section = Section {
            section: "load".to_owned(),
            run: Run::default(),
            found,
        };
        let plots = plots(&section);
        assert_eq!(
            (plots.len(), titles(&section).len()),
            (2, 2),
            "48 bars in the first, 12 in the second"
        );
        let all = plots.concat();
        assert!(
            (0..30).all(|case| all.contains(&format!("case {case}\n"))),
            "{all}"
        );
        assert_eq!(all.matches("theirs\n").count(), 30);
        assert!(all.contains("3.00 ms") && all.starts_with("<svg"));
    }
}
