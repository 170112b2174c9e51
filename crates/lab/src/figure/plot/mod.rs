//! Figures as pictures: SVG for documents, PNG for other uses.
//!
//! Panels are side by side, with one legend. A bar or point is the median of the runs; its whisker
//! spans the minimum to the maximum. The typeface is linked in, so a picture needs nothing from the
//! machine.

mod axis;
pub(crate) mod xy;

use super::plan::{Panel, Style, titled};
use super::report::FigureReport;
use anyhow::{Result, anyhow};
use axis::{Categories, Numbers, plain};
use load::RunSummary;
use plotters::backend::DrawingBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::prelude::{BitMapBackend, SVGBackend};
use plotters::style::{
    BLACK, Color, FontStyle, IntoTextStyle as _, RGBColor, ShapeStyle, TextStyle, WHITE,
    register_font,
};
use std::path::Path;
use std::sync::Once;

/// Pixels of a panel.
const PANEL: (u32, u32) = (520, 330);
/// Pixels above and below the panels.
const HEADER: u32 = 72;
const FOOTER: u32 = 26;
const PANELS_A_ROW: usize = 2;
/// Most letters of all names below a panel.
const NAMES_MAX: usize = 60;

const TYPEFACE: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// Colours that are distinct in print and for any colour vision.
const COLOURS: [RGBColor; 7] = [
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
];

/// Share of a name's width that its bars occupy.
const BARS: f64 = 0.8;

type Area<'a, B> = DrawingArea<B, Shift>;
type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Categories, Numbers>>;

/// The figure as SVG.
///
/// # Errors
/// It cannot be drawn.
pub fn svg(report: &FigureReport) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size(report)).into_drawing_area();
        draw(&area, report)?;
    }
    Ok(text)
}

/// Writes the figure to a file as PNG.
///
/// # Errors
/// It cannot be drawn, or the file cannot be written.
pub fn png(report: &FigureReport, path: &Path) -> Result<()> {
    let area = BitMapBackend::new(path, size(report)).into_drawing_area();
    draw(&area, report)
}

fn size(report: &FigureReport) -> (u32, u32) {
    let columns = columns(report);
    let rows = report.panels.len().div_ceil(columns).max(1);
    let times = |pixels: u32, count: usize| pixels * u32::try_from(count).expect("a few panels");
    // A single panel is twice as wide if its names would overlap otherwise.
    let letters: usize = report.x.ticks.iter().map(String::len).sum();
    let width = if letters > NAMES_MAX {
        PANELS_A_ROW
    } else {
        columns
    };
    (
        times(PANEL.0, width),
        times(PANEL.1, rows) + HEADER + FOOTER,
    )
}

fn columns(report: &FigureReport) -> usize {
    report.panels.len().clamp(1, PANELS_A_ROW)
}

fn draw<B: DrawingBackend>(area: &Area<'_, B>, report: &FigureReport) -> Result<()> {
    register_typeface();
    area.fill(&WHITE).map_err(failed)?;
    let (_, height) = area.dim_in_pixel();
    let (header, rest) = area.split_vertically(HEADER);
    let (body, footer) = rest.split_vertically(height - HEADER - FOOTER);
    draw_header(&header, report)?;
    let runs = if report.runs == 1 {
        "one run, so no spread is known".to_owned()
    } else {
        format!(
            "median of {} runs; whiskers: smallest and largest",
            report.runs
        )
    };
    let by = if report.simulated {
        "simulated"
    } else {
        &report.machine.model_name
    };
    let note = format!("{runs}; {} s each; {by}", report.seconds);
    draw_text(&footer, note, (12, 4), font(12))?;
    let columns = columns(report);
    let panels = body.split_evenly((report.panels.len().div_ceil(columns), columns));
    for (area, panel) in panels.iter().zip(&report.panels) {
        draw_panel(area, report, panel)?;
    }
    area.present().map_err(failed)
}

/// Title and legend.
fn draw_header<B: DrawingBackend>(area: &Area<'_, B>, report: &FigureReport) -> Result<()> {
    let title = format!("{}: {}", report.paper, report.title);
    let (width, _) = area.estimate_text_size(&title, &font(19)).map_err(failed)?;
    // A long title gets a smaller font, so that it fits.
    let room = area.dim_in_pixel().0 - 24;
    let size = if width > room { 19 * room / width } else { 19 };
    draw_text(area, title, (12, 10), font(size))?;
    let mut left = 14;
    for (series, name) in report.series.iter().enumerate() {
        let swatch = Rectangle::new([(left, 46), (left + 14, 58)], colour(series).filled());
        area.draw(&swatch).map_err(failed)?;
        draw_text(area, (*name).to_owned(), (left + 20, 45), font(15))?;
        let (width, _) = area.estimate_text_size(name, &font(15)).map_err(failed)?;
        left += 44 + i32::try_from(width).unwrap_or(0);
    }
    Ok(())
}

fn draw_panel<B: DrawingBackend>(
    area: &Area<'_, B>,
    report: &FigureReport,
    panel: &Panel,
) -> Result<()> {
    let spreads = |series: &str| -> Vec<Option<RunSummary>> {
        let ticks = report.x.ticks.iter();
        ticks
            .map(|tick| report.at(series, tick, panel.metric))
            .collect()
    };
    let series: Vec<_> = report.series.iter().map(|name| spreads(name)).collect();
    let all = series.iter().flatten().flatten();
    let y = Numbers::holding(panel.scale, all.flat_map(|s| [s.min, s.max]));
    let x = Categories {
        names: report.x.ticks.clone(),
    };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(16)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(GRID)
        .axis_style(INK)
        .x_desc(report.x.title())
        .y_desc(titled(panel.metric.label(), panel.metric.unit()))
        .axis_desc_style(font(15))
        .label_style(font(13))
        .x_labels(report.x.ticks.len())
        .x_label_formatter(&|place| x.label_at(*place))
        .y_label_formatter(&|value| plain(*value))
        .draw()
        .map_err(failed)?;
    for (index, spreads) in series.iter().enumerate() {
        match panel.style {
            Style::Bars => {
                let width = BARS / series.len() as f64;
                let left = (1.0 - BARS) / 2.0 + width * index as f64;
                draw_bars(
                    &mut chart,
                    spreads,
                    (left, width),
                    y.bottom(),
                    colour(index),
                )?;
            }
            Style::Lines => draw_line(&mut chart, spreads, colour(index))?,
        }
    }
    Ok(())
}

fn draw_bars<'a, B: DrawingBackend + 'a>(
    chart: &mut Chart<'a, B>,
    spreads: &[Option<RunSummary>],
    (left, width): (f64, f64),
    bottom: f64,
    colour: RGBColor,
) -> Result<()> {
    for (tick, spread) in present(spreads) {
        let from = tick as f64 + left;
        let corners = [(from, bottom), (from + width * 0.92, spread.median)];
        let bar = Rectangle::new(corners, colour.filled());
        chart.draw_series([bar]).map_err(failed)?;
        draw_whisker(chart, from + width * 0.46, spread)?;
    }
    Ok(())
}

fn draw_line<'a, B: DrawingBackend + 'a>(
    chart: &mut Chart<'a, B>,
    spreads: &[Option<RunSummary>],
    colour: RGBColor,
) -> Result<()> {
    let style = ShapeStyle {
        stroke_width: 2,
        ..colour.to_rgba().into()
    };
    let points: Vec<_> = present(spreads)
        .map(|(tick, spread)| (Categories::middle(tick), spread))
        .collect();
    let medians: Vec<_> = points
        .iter()
        .map(|(x, spread)| (*x, spread.median))
        .collect();
    chart
        .draw_series([PathElement::new(medians.clone(), style)])
        .map_err(failed)?;
    for (x, spread) in points {
        draw_whisker(chart, x, spread)?;
    }
    let dots = medians
        .into_iter()
        .map(|at| Circle::new(at, 4, colour.filled()));
    chart.draw_series(dots).map_err(failed)?;
    Ok(())
}

/// Draws a whisker from the minimum to the maximum of the runs.
fn draw_whisker<'a, B: DrawingBackend + 'a>(
    chart: &mut Chart<'a, B>,
    x: f64,
    RunSummary { min, max, .. }: RunSummary,
) -> Result<()> {
    let half = 0.025;
    let lines = [
        [(x, min), (x, max)],
        [(x - half, min), (x + half, min)],
        [(x - half, max), (x + half, max)],
    ];
    let style: ShapeStyle = BLACK.mix(0.8).into();
    let elements = lines.map(|line| PathElement::new(line.to_vec(), style));
    chart.draw_series(elements).map_err(failed)?;
    Ok(())
}

fn present(spreads: &[Option<RunSummary>]) -> impl Iterator<Item = (usize, RunSummary)> {
    let there = spreads.iter().enumerate();
    there.filter_map(|(tick, spread)| Some((tick, (*spread)?)))
}

fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

fn font(pixels: u32) -> TextStyle<'static> {
    (TYPEFACE, pixels).into_text_style(&(1, 1)).color(&INK)
}

fn draw_text<B: DrawingBackend>(
    area: &Area<'_, B>,
    text: String,
    at: (i32, i32),
    style: TextStyle<'_>,
) -> Result<()> {
    area.draw(&Text::new(text, at, style)).map_err(failed)
}

/// Registers the typeface that measures and draws text.
fn register_typeface() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let typeface = epaint_default_fonts::UBUNTU_LIGHT;
        let known = register_font(TYPEFACE, FontStyle::Normal, typeface);
        assert!(known.is_ok(), "the typeface that is linked in is sound");
    });
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw the figure: {error}")
}
