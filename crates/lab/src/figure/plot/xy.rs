//! Curves over numbers: panels side by side, each line with its own points.

use super::axis::{Numbers, plain};
use super::{
    Area, COLOURS, FOOTER, GRID, HEADER, INK, PANEL, draw_text, failed, font, register_typeface,
};
use crate::figure::plan::Scale;
use anyhow::Result;
use plotters::backend::DrawingBackend;
use plotters::chart::ChartBuilder;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::{BLACK, Color, RGBColor, ShapeStyle, WHITE};

/// A diagram of curves.
#[derive(Clone, Debug)]
pub(crate) struct Diagram {
    /// Horizontal quantity, with its unit.
    pub(crate) x: String,
    /// Vertical quantity, with its unit.
    pub(crate) y: String,
    /// Points above this value are omitted, and lines end there.
    pub(crate) top: f64,
    /// The curves, in the order of the legend; each begins at its leftmost point.
    pub(crate) curves: Vec<Vec<(f64, f64)>>,
}

/// Diagrams side by side, with one title and one legend.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) note: String,
    /// Names of the curves of every diagram; the last one may be drawn in black, as the reference
    /// of the remaining curves.
    pub(crate) legend: Vec<String>,
    pub(crate) last_is_black: bool,
    pub(crate) diagrams: Vec<Diagram>,
}

impl Sheet {
    /// The sheet as SVG.
    pub(crate) fn svg(&self) -> Result<String> {
        let columns = u32::try_from(self.diagrams.len().max(1)).expect("a few diagrams");
        let size = (PANEL.0 * columns, PANEL.1 + HEADER + FOOTER);
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&area)?;
        }
        Ok(text)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<'_, B>) -> Result<()> {
        register_typeface();
        area.fill(&WHITE).map_err(failed)?;
        let (_, height) = area.dim_in_pixel();
        let (header, rest) = area.split_vertically(HEADER);
        let (body, footer) = rest.split_vertically(height - HEADER - FOOTER);
        draw_text(&header, self.title.clone(), (12, 10), font(19))?;
        let mut left = 14;
        for (index, name) in self.legend.iter().enumerate() {
            let swatch = Rectangle::new([(left, 46), (left + 14, 58)], self.colour(index).filled());
            header.draw(&swatch).map_err(failed)?;
            draw_text(&header, name.clone(), (left + 20, 45), font(15))?;
            let (width, _) = header.estimate_text_size(name, &font(15)).map_err(failed)?;
            left += 40 + i32::try_from(width).unwrap_or(0);
        }
        draw_text(&footer, self.note.clone(), (12, 4), font(12))?;
        let panels = body.split_evenly((1, self.diagrams.len().max(1)));
        for (area, diagram) in panels.iter().zip(&self.diagrams) {
            self.draw_diagram(area, diagram)?;
        }
        area.present().map_err(failed)
    }

    fn colour(&self, curve: usize) -> RGBColor {
        if self.last_is_black && curve + 1 == self.legend.len() {
            BLACK
        } else {
            COLOURS[curve % COLOURS.len()]
        }
    }

    fn draw_diagram<B: DrawingBackend>(&self, area: &Area<'_, B>, diagram: &Diagram) -> Result<()> {
        let shown = |curve: &Vec<(f64, f64)>| -> Vec<(f64, f64)> {
            let below = curve.iter().copied().take_while(|&(_, y)| y <= diagram.top);
            below.collect()
        };
        let curves: Vec<_> = diagram.curves.iter().map(shown).collect();
        let places = curves.iter().flatten();
        let x = Numbers::holding(Scale::Linear, places.clone().map(|&(x, _)| x));
        let y = Numbers::holding(Scale::Linear, places.map(|&(_, y)| y));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(16)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID)
            .axis_style(INK)
            .x_desc(&diagram.x)
            .y_desc(&diagram.y)
            .axis_desc_style(font(15))
            .label_style(font(13))
            .x_label_formatter(&|value| plain(*value))
            .y_label_formatter(&|value| plain(*value))
            .draw()
            .map_err(failed)?;
        for (index, curve) in curves.into_iter().enumerate() {
            let colour = self.colour(index);
            let style = ShapeStyle {
                stroke_width: 2,
                ..colour.to_rgba().into()
            };
            let line = PathElement::new(curve.clone(), style);
            chart.draw_series([line]).map_err(failed)?;
            let dots = curve
                .into_iter()
                .map(|at| Circle::new(at, 2, colour.filled()));
            chart.draw_series(dots).map_err(failed)?;
        }
        Ok(())
    }
}
