//! A chart before it is drawn: its words and its data. Whoever cannot see a drawing is told the lines in it.

use super::blocks::{Chart, GridBlock};
use super::charts::{
    Bar, Caption, Curve, Intervals, Night, WaterfallBar, bars, curves, intervals, nights, waterfall,
};

/// What stands around a drawing.
pub(super) struct Plate {
    /// Its own on the page.
    pub(super) id: String,
    pub(super) title: String,
    /// What is seen, and how it is to be read.
    pub(super) reading: String,
    /// What is not in the drawing.
    pub(super) note: String,
    pub(super) grid: GridBlock,
}

impl Plate {
    /// Bars, up to `most`, or to the longest. None if there are none.
    pub(super) fn bars(self, list: &[Bar], most: Option<f64>) -> Option<Chart> {
        let labels = list.iter().map(|bar| (bar.label.as_str(), bar.shown.as_str()));
        let caption = self.caption(labels)?;
        Some(self.chart(bars(&caption, list, most), caption))
    }

    /// Intervals. None if there are none.
    pub(super) fn intervals(self, drawing: &Intervals<'_>) -> Option<Chart> {
        let labels = drawing.list.iter().map(|line| (line.label.as_str(), line.shown.as_str()));
        let caption = self.caption(labels)?;
        Some(self.chart(intervals(&caption, drawing), caption))
    }

    /// Curves over what the axis is called. None if there are none.
    pub(super) fn curves(self, list: &[Curve], unit: &str) -> Option<Chart> {
        let caption =
            self.caption(list.iter().map(|curve| (curve.label.as_str(), curve.end.as_str())))?;
        Some(self.chart(curves(&caption, list, unit), caption))
    }

    /// A count that becomes smaller. None if it has no steps.
    pub(super) fn waterfall(self, list: &[WaterfallBar]) -> Option<Chart> {
        let caption = self.caption(list.iter().map(|of| (of.label.as_str(), of.shown.as_str())))?;
        Some(self.chart(waterfall(&caption, list), caption))
    }

    /// A figure over the nights. None if fewer than two have it.
    pub(super) fn nights(self, list: &[Night], show: fn(f64) -> String) -> Option<Chart> {
        let known: Vec<(String, String)> = list
            .iter()
            .filter_map(|night| Some((night.label.clone(), show(night.value?))))
            .collect();
        let labels = known.iter().map(|(label, value)| (label.as_str(), value.as_str()));
        let caption = self.caption(labels.filter(|_| known.len() > 1))?;
        Some(self.chart(nights(&caption, list, show), caption))
    }

    fn caption<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Caption> {
        let labels: Vec<String> =
            labels.map(|(label, shown)| format!("{label}: {shown}")).collect();
        (!labels.is_empty()).then(|| Caption {
            id: self.id.clone(),
            title: self.title.clone(),
            description: labels.join("; "),
        })
    }

    fn chart(self, svg: String, caption: Caption) -> Chart {
        Chart { caption, svg, reading: self.reading, note: self.note, grid: self.grid }
    }
}
