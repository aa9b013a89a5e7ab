//! Pages of made-up runs.

mod fixtures;

use std::fs;

use expect_test::expect;

use super::policy::source;
use super::*;
use fixtures::{Fixture, GroupFixture, context, group, past, shelf, small};

fn page(fixture: &Fixture, context: &PageContext) -> String {
    render(fixture.path(), context).expect("a page")
}

/// What stands between two marks, the first time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from}")) + from.len();
    let length = text[start..].find(to).unwrap_or_else(|| panic!("no {to}"));
    &text[start..start + length]
}

/// The page as text: no tags, no style sheet, no script, a line for each element.
fn plain(html: &str) -> String {
    let body = between(html, "<main>", "</main>");
    let mut text = String::new();
    for piece in body.split('<').skip(1) {
        let (tag, rest) = piece.split_once('>').expect("a tag");
        if !rest.trim().is_empty() {
            text.push_str(rest.trim());
            text.push(if tag.starts_with("td") || tag.starts_with("th") { '\t' } else { '\n' });
        } else if tag == "/tr" {
            text.push('\n');
        }
    }
    text
}

#[test]
fn pages_are_the_same_for_the_same_run() {
    let fixture = Fixture::of(&small());
    fixture.counterfactuals(50);
    let context = PageContext { page_rows: 20, ..context() };
    assert_eq!(page(&fixture, &context), page(&fixture, &context));
}

#[test]
fn names_from_the_data_stay_text() {
    let fixture = Fixture::of(&small());
    fixture.counterfactuals(50);
    let html = page(&fixture, &PageContext { page_rows: 20, ..context() });
    assert!(html.contains("&lt;script&gt;alert") || html.contains("&#60;script&#62;alert"));
    assert_eq!(html.matches("<script").count(), 1, "ours alone");
    assert!(!html.contains("<b>"));
    assert!(!html.contains("\"coast\""));
}

#[test]
fn the_policy_knows_the_script_and_the_style_sheet_that_are_there() {
    let html = page(&Fixture::of(&small()), &context());
    let policy = between(&html, "Content-Security-Policy\" content=\"", "\"").replace("&#39;", "'");
    assert!(
        policy.contains(&format!("script-src {}", source(between(&html, "<script>", "</script>"))))
    );
    assert!(
        policy.contains(&format!("style-src {}", source(between(&html, "<style>", "</style>"))))
    );
    assert!(policy.starts_with("default-src 'none';"));
    assert!(
        !html.contains(" style=\"") && !html.contains(" onclick"),
        "the policy would refuse them"
    );
}

#[test]
fn nothing_is_fetched() {
    let html = page(&Fixture::of(&small()), &context());
    let namespace = "http://www.w3.org/2000/svg";
    assert!(!html.replace(namespace, "").contains("://"));
    assert!(!html.contains("@import") && !html.contains("url("));
}

#[test]
fn every_chart_has_a_title_a_description_and_its_data() {
    let html = page(&Fixture::of(&small()), &context());
    let figures: Vec<&str> = html.split("<figure ").skip(1).collect();
    assert!(figures.len() > 8, "{}", figures.len());
    let mut seen = std::collections::BTreeSet::new();
    for figure in figures {
        let figure = figure.split("</figure>").next().expect("an end");
        let id = between(figure, "id=\"", "\"");
        assert!(seen.insert(id.to_string()), "{id} twice");
        for part in ["<figcaption><strong>", "<svg ", "<details>", "<tbody>", "role=\"img\""] {
            assert!(figure.contains(part), "{id} lacks {part}");
        }
        for part in ["-t\">", "-d\">"] {
            assert!(!between(figure, &format!("id=\"{id}{part}"), "<").is_empty(), "{id}: {part}");
        }
        assert!(figure.split("<tbody>").nth(1).expect("rows").contains("<tr>"), "{id} has no row");
    }
}

#[test]
fn small_groups_are_said_to_be_suppressed() {
    let html = page(&Fixture::of(&small()), &context());
    assert!(html.contains("1 group with fewer than 30 refused rows is suppressed"));
    assert!(!html.contains("Overseas"));
    assert!(html.contains("(no value)"), "nulls are a group");
}

#[test]
fn a_run_without_tables_still_has_eleven_sections() {
    let html = page(&Fixture::empty(), &context());
    assert_eq!(html.matches("<section ").count(), 11);
    assert!(html.contains("The run has no table of groups"));
    assert!(html.contains("Groups were not compared"));
}

#[test]
fn a_table_of_another_version_is_named() {
    let fixture = Fixture::of(&small());
    let at_bound = crate::output::audit_at_bound_schema();
    fixture.write("reports/audit/gaps.parquet", at_bound, &[]);
    let error = render(fixture.path(), &context()).expect_err("refused").to_string();
    expect![[r#"
        reports/audit/gaps.parquet: lacks the column `against`
          hint: it was written by another version; `overturn report JOB` writes it anew"#]]
    .assert_eq(&error);
    fs::write(fixture.path().join("reports/audit/gaps.parquet"), "x").expect("written");
    let error = render(fixture.path(), &context()).expect_err("refused").to_string();
    assert!(error.ends_with("gaps.parquet: cannot be read"), "{error}");
}

#[test]
fn what_the_model_was_asked_and_the_nights_are_told_where_they_are_there() {
    let fixture = Fixture::of(&small());
    fixture.asked(&small()[..9]);
    let html = page(&fixture, &PageContext { past: past(), ..context() });
    let said = [
        "Actions that help most",
        "What 2 actions, chosen for all, reach together",
        "Which rule binds",
        "Are the differences the search",
        "Protected features that the model sees",
        "Named among the reasons",
        "16 noisy copies of each",
        "of yesterday's counterfactuals still hold",
        "Refused although they did what was asked: 3 rows",
        "Over the runs that are known",
    ];
    let text = html.replace("&#39;", "'");
    said.iter().for_each(|said| assert!(text.contains(said), "lacks `{said}`"));
    assert!(!html.contains("<i>car"), "names of actions are data");
    assert_eq!(html.matches("<figure ").count(), html.matches("</tbody>").count() - tables(&html));
    if let Some(shelf) = shelf() {
        fs::write(shelf.join("asked.html"), html).expect("written");
    }
}

/// Tables that are no chart's.
fn tables(html: &str) -> usize {
    html.matches("<div class=\"scroll\">").count() - html.matches("<details>").count()
}

/// A run with so many groups of one attribute.
fn many(groups: u64) -> Vec<GroupFixture> {
    let mut list = vec![group((None, None), groups * 400, (0.34, 0.78), 1.0)];
    for number in 0..groups {
        let value = format!("segment {number} of a branch with a rather long name");
        let spread = (number % 97) as f64 / 400.0;
        let shares = (0.3 + spread / 2.0, 0.9 - spread);
        list.push(group((Some("branch"), Some(&value)), 300 + number, shares, 0.9 + spread));
    }
    list[1].reference = true;
    list
}

#[test]
fn a_thousand_segments_fit() {
    let fixture = Fixture::of(&many(1_000));
    fixture.counterfactuals(20_000);
    let html = page(&fixture, &PageContext { page_rows: 10_000, ..context() });
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    assert!(html.contains("988 more groups in the table: duckdb"));
    assert!(html.contains("as many as the page has room for"));
    if let Some(shelf) = shelf() {
        fs::write(shelf.join("thousand.html"), html).expect("written");
    }
}

#[test]
fn rows_are_looked_up_only_where_the_job_allows_it() {
    let fixture = Fixture::of(&small());
    fixture.counterfactuals(60);
    let html = page(&fixture, &context());
    assert!(html.contains("No rows are on this page") && !html.contains("id=\"sample\""));
    let html = page(&fixture, &PageContext { page_rows: 10, ..context() });
    let sample = between(&html, "id=\"sample\"", "</table>");
    assert_eq!(sample.matches("<tr><td").count(), 10);
    assert!(
        sample.contains("100001") && !sample.contains("100003"),
        "what has the decision is not"
    );
    if let Some(shelf) = shelf() {
        fs::write(shelf.join("small.html"), html).expect("written");
    }
}

#[test]
fn a_small_page() {
    let groups = &small()[..3];
    let html = page(&Fixture::of(groups), &context());
    expect_test::expect_file!["small.txt"].assert_eq(&plain(&html));
}
