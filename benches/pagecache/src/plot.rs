//! SVG plots: load time by loader and variant, and read rate of the device over time.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::Failure;
use crate::report::RunGroup;

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

/// A bar at the median for each variant, grouped by loader, with a line from minimum to maximum.
pub fn bars(path: &Path, title: &str, groups: &[RunGroup<'_>]) -> Result<(), Failure> {
    let area = SVGBackend::new(path, (860, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let longest = groups
        .iter()
        .flat_map(|group| &group.runs)
        .map(|run| run.load)
        .fold(0.0, f64::max);
    let width = groups.len() as f64 + 1.0;
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
    let variants = variants(groups);
    for (at, group) in groups.iter().enumerate() {
        let (x, colour) = (at as f64 + 0.6, colour(&variants, group));
        let median = group.median(|run| run.load);
        chart.draw_series([Rectangle::new(
            [(x, 0.0), (x + 0.8, median)],
            colour.filled(),
        )])?;
        let most = group.runs.iter().map(|run| run.load).fold(0.0, f64::max);
        let least = group.least(|run| run.load);
        chart.draw_series([PathElement::new([(x + 0.4, least), (x + 0.4, most)], BLACK)])?;
        chart.draw_series([Text::new(
            format!("{median:.2}"),
            (x + 0.05, most + longest * 0.02),
            ("sans-serif", 12),
        )])?;
        if at == 0 || groups[at - 1].loader != group.loader {
            chart.draw_series([Text::new(
                group.loader.to_owned(),
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

/// Read rate of the device over time with the first loader, for the run with the median load time.
pub fn rates(path: &Path, title: &str, groups: &[RunGroup<'_>]) -> Result<(), Failure> {
    let Some(loader) = groups.first().map(|group| group.loader) else {
        return Ok(());
    };
    let shown: Vec<_> = groups
        .iter()
        .filter(|group| group.loader == loader)
        .collect();
    let lines: Vec<_> = shown.iter().map(|group| (*group, rate(group))).collect();
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
    let variants = variants(groups);
    for (group, line) in lines {
        let colour = colour(&variants, group);
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(group.variant)
            .legend(legend);
    }
    legend(&mut chart)?;
    area.present()?;
    Ok(())
}

/// Draws the legend.
fn legend(chart: &mut Chart<'_>) -> Result<(), Failure> {
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3));
    Ok(labels.draw()?)
}

fn variants(groups: &[RunGroup<'_>]) -> Vec<&'static str> {
    let mut variants = Vec::new();
    groups.iter().for_each(|group| {
        if !variants.contains(&group.variant) {
            variants.push(group.variant)
        }
    });
    variants
}

fn colour(variants: &[&str], group: &RunGroup<'_>) -> RGBColor {
    let at = variants
        .iter()
        .position(|variant| *variant == group.variant)
        .unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

/// GB per second over windows of 0.2 s, of the run with the median load time.
fn rate(group: &RunGroup<'_>) -> Vec<(f64, f64)> {
    let mut runs: Vec<_> = group.runs.clone();
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
