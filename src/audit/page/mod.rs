//! `reports/audit.html`: the audit for people who answer for a model and do not read Parquet. One file that asks no
//! network for anything, is the same for the same run, and is whole without scripts and legible without its style sheet.
//!
//! Tables become rows of types (`data`), rows become blocks of plain text and drawings (`sections`), and templates
//! make a page of blocks. Texts from the data are escaped in two places only: by the templates, and by the writer of
//! drawings.

mod blocks;
mod charts;
mod context;
mod data;
mod plate;
mod policy;
mod sections;
mod tables;
mod words;

#[cfg(test)]
mod tests;

use std::path::Path;

use askama::Template;

use crate::error::{Error, Result};
use blocks::{Block, PageSection};
pub use context::{PageContext, PastRun, RowAccounts};
use data::Data;
use sections::{SectionInput, sections};
use words::{clipped, counted, listed, name};

/// Goes into the page as it is, and its hash into the page's policy.
const STYLE: &str = include_str!("page.css");
/// The same of what looks rows up, and opens details before they are printed.
const SCRIPT: &str = include_str!("page.js");

/// The page. Templates include each other by paths, which askama takes from the crate's root for a source that is
/// written here: a folder `templates` at the top would be its other place for them.
#[derive(Template)]
#[template(
    ext = "html",
    source = "{% include \"src/audit/page/templates/page.html\" %}",
    whitespace = "minimize"
)]
struct Page<'a> {
    title: String,
    run: &'a str,
    lead: String,
    version: String,
    policy: String,
    first: &'a str,
    sections: &'a [PageSection],
    foot: String,
    style: &'a str,
    script: &'a str,
}

/// Makes the page of a run from the tables in its folder; what is not there is left out, and said to be.
///
/// # Errors
/// When a table cannot be read, or was written by another version.
pub fn render(folder: &Path, context: &PageContext) -> Result<String> {
    let data = Data::read(folder, context.published.as_deref())?;
    let sections = sections(&SectionInput { data: &data, context, folder })?;
    let version = context.versions.iter().find(|(of, _)| of == "overturn");
    let version = version.map_or(String::new(), |(_, version)| version.clone());
    let page = Page {
        title: format!("Recourse audit of run {}", clipped(&context.run.run_id, 16)),
        run: &context.run.run_id,
        lead: lead(&data, context),
        policy: policy::policy(STYLE, SCRIPT),
        first: sections.first().map_or("", |section| section.id),
        sections: &sections,
        foot: format!("Run {} · overturn {version}", context.run.run_id),
        version,
        style: STYLE,
        script: SCRIPT,
    };
    page.render().map_err(|error| Error::internal("the audit's page", "has no text").source(error))
}

fn lead(data: &Data, context: &PageContext) -> String {
    let targets: Vec<String> =
        data.targets().into_iter().map(|of| format!("“{}”", name(Some(of)))).collect();
    let targets_text = match targets.as_slice() {
        [] => String::new(),
        [one] => format!(" The decision asked for is {one}."),
        few if few.len() <= 4 => format!(" The decisions asked for are {}.", listed(few)),
        many => format!(" {} decisions are asked for.", many.len()),
    };
    format!(
        "{} were put to the model.{targets_text} For those it refuses, this page says who could have had another decision, by \
         which change and at what cost, who is shut out, and how far groups differ.",
        counted(context.accounts.explained(), "row")
    )
}
