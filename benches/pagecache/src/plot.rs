//! Plots: load time by loader and variant, and what the device gives over time.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::Failure;
use crate::report::Cell;

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const COLOURS: [RGBColor; 8] = [
    RGBColor(90, 90, 90),
    RGBColor(214, 140, 60),
    RGBColor(120, 170, 90),
    RGBColor(50, 110, 190),
    RGBColor(110, 60, 170),
    RGBColor(190, 70, 90),
    RGBColor(60, 160, 160),
    RGBColor(160, 150, 50),
];

/// A bar per variant, in groups by loader; a line from the least to the largest.
pub fn bars(path: &Path, title: &str, cells: &[Cell<'_>]) -> Result<(), Failure> {
    let area = SVGBackend::new(path, (860, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let longest = cells
        .iter()
        .flat_map(|cell| &cell.runs)
        .map(|run| run.load)
        .fold(0.0, f64::max);
    let width = cells.len() as f64 + 1.0;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Load, {title}"), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..width, 0.0..longest * 1.45)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .max_light_lines(0)
        .y_desc("seconds")
        .draw()?;
    let variants = variants(cells);
    for (at, cell) in cells.iter().enumerate() {
        let (x, colour) = (at as f64 + 0.6, colour(&variants, cell));
        let median = cell.median(|run| run.load);
        chart.draw_series([Rectangle::new(
            [(x, 0.0), (x + 0.8, median)],
            colour.filled(),
        )])?;
        let most = cell.runs.iter().map(|run| run.load).fold(0.0, f64::max);
        let least = cell.least(|run| run.load);
        chart.draw_series([PathElement::new([(x + 0.4, least), (x + 0.4, most)], BLACK)])?;
        chart.draw_series([Text::new(
            format!("{median:.2}"),
            (x + 0.05, most + longest * 0.02),
            ("sans-serif", 12),
        )])?;
        if at == 0 || cells[at - 1].loader != cell.loader {
            chart.draw_series([Text::new(
                cell.loader.to_owned(),
                (x, longest * 1.4),
                ("sans-serif", 15),
            )])?;
        }
    }
    for (variant, colour) in variants.iter().zip(COLOURS) {
        let empty = std::iter::empty::<Rectangle<(f64, f64)>>();
        let legend = move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
        chart.draw_series(empty)?.label(*variant).legend(legend);
    }
    legend(&mut chart)?;
    area.present()?;
    Ok(())
}

/// What the device gave over time, in the round whose load is the median, of the first loader.
pub fn rates(path: &Path, title: &str, cells: &[Cell<'_>]) -> Result<(), Failure> {
    let Some(loader) = cells.first().map(|cell| cell.loader) else {
        return Ok(());
    };
    let shown: Vec<_> = cells.iter().filter(|cell| cell.loader == loader).collect();
    let lines: Vec<_> = shown.iter().map(|cell| (*cell, rate(cell))).collect();
    let longest = lines
        .iter()
        .filter_map(|(_, line)| line.last())
        .map(|point| point.0)
        .fold(0.0, f64::max);
    let highest = lines
        .iter()
        .flat_map(|(_, line)| line)
        .map(|point| point.1)
        .fold(0.0, f64::max);
    let area = SVGBackend::new(path, (860, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("Read from the device, {title}, {loader}"),
            ("sans-serif", 20),
        )
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..longest, 0.0..highest * 1.6)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("seconds since the start")
        .y_desc("GB/s")
        .draw()?;
    let variants = variants(cells);
    for (cell, line) in lines {
        let colour = colour(&variants, cell);
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(cell.variant)
            .legend(legend);
    }
    legend(&mut chart)?;
    area.present()?;
    Ok(())
}

/// Names the series.
fn legend(chart: &mut Chart<'_>) -> Result<(), Failure> {
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3));
    Ok(labels.draw()?)
}

fn variants(cells: &[Cell<'_>]) -> Vec<&'static str> {
    let mut variants = Vec::new();
    cells.iter().for_each(|cell| {
        if !variants.contains(&cell.variant) {
            variants.push(cell.variant)
        }
    });
    variants
}

fn colour(variants: &[&str], cell: &Cell<'_>) -> RGBColor {
    let at = variants
        .iter()
        .position(|variant| *variant == cell.variant)
        .unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

/// GB per second over a fifth of a second, of the run in the middle.
fn rate(cell: &Cell<'_>) -> Vec<(f64, f64)> {
    let mut runs: Vec<_> = cell.runs.clone();
    runs.sort_by(|a, b| a.load.total_cmp(&b.load));
    let samples = &runs[runs.len() / 2].samples;
    let points = samples.windows(5).step_by(2);
    points
        .map(|of| {
            let (first, last) = (of[0], of[4]);
            let bytes = last.1.saturating_sub(first.1) as f64;
            (last.0.max(0.0), bytes / (last.0 - first.0).max(1e-3) / 1e9)
        })
        .collect()
}
