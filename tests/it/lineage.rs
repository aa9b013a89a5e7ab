//! Events for catalogues: what is told, to whom, and that no run fails over it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use expect_test::expect;
use serde_json::Value;

use crate::fitted::applications;
use crate::util::{Bench, Run};

/// What stands nowhere but in the request's head.
const KEY: &str = "planted-secret-key";

/// A server that takes so many requests and gives them back: head and event.
fn server(requests: usize) -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().take(requests) {
            let mut stream = stream.expect("a connection");
            let (mut read, mut buffer) = (Vec::new(), [0; 65_536]);
            let (head, body) = loop {
                let count = stream.read(&mut buffer).expect("read");
                read.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&read).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.to_lowercase().lines().find_map(|line| {
                    line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok()
                });
                if length.is_some_and(|length| body.len() >= length) {
                    break (head.to_string(), body.to_string());
                }
            };
            let event = serde_json::from_str(&body).expect("JSON");
            sender.send((head, event)).expect("heard");
            let answer = "HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).expect("answered");
        }
    });
    (address, receiver)
}

fn prepared() -> Bench {
    let bench = Bench::new();
    let table = applications(&bench, 300, &[]);
    bench.explain_job(&table, "");
    bench
}

fn told(bench: &Bench) -> Vec<Value> {
    let text = fs::read_to_string(bench.path("lineage.jsonl")).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_run_tells_a_server_and_a_file_what_it_read_and_wrote() {
    let bench = prepared();
    let (url, events) = server(2);
    bench.append("job.toml", "[report.gates]\nmin_validity = 0.1\n[lineage]\nfile = \"lineage.jsonl\"\nurl = \"http://127.0.0.1:1\"\nnamespace = \"other\"\n");
    let mut command = bench.command("explain", &["-v"]);
    command.env("OPENLINEAGE_URL", &url).env("OPENLINEAGE_API_KEY", KEY);
    command
        .env("OPENLINEAGE_NAMESPACE", "nightly")
        .env("OPENLINEAGE_PARENT_ID", "dag/team/task/0198a1");
    let run = Run::of(&mut command).ok();
    let events: Vec<(String, Value)> = events.iter().take(2).collect();
    assert!(events.iter().all(|(head, _)| head.starts_with("POST /api/v1/lineage ")));
    assert!(events.iter().all(|(head, _)| head.contains(&format!("authorization: Bearer {KEY}"))));
    let (start, complete) = (&events[0].1, &events[1].1);
    assert_eq!(
        (&start["eventType"], &complete["eventType"]),
        (&"START".into(), &"COMPLETE".into())
    );
    assert_eq!(start["run"]["runId"], complete["run"]["runId"]);
    assert_eq!(complete["job"]["namespace"], "nightly");
    assert_eq!(complete["run"]["facets"]["parent"]["job"]["name"], "team/task");
    let (input, output) = (&complete["inputs"][0], &complete["outputs"][0]);
    assert_eq!(input["name"], bench.text("applications"));
    assert_eq!(input["inputFacets"]["dataQualityAssertions"]["assertions"][0]["success"], true);
    assert_eq!(output["name"], bench.text("out/counterfactuals"));
    assert_eq!(output["outputFacets"]["outputStatistics"]["rowCount"], 300);
    let columns = &output["facets"]["columnLineage"]["fields"];
    assert_eq!(
        columns["application_id"]["inputFields"][0]["transformations"][0]["subtype"],
        "IDENTITY"
    );
    assert!(columns["cf_income"]["inputFields"].as_array().is_some_and(|from| from.len() > 5));
    assert_eq!(told(&bench), [start.clone(), complete.clone()]);
    let manifest = fs::read_to_string(bench.path("out/manifest.json")).expect("a manifest");
    let all = format!("{}{}{manifest}{start}{complete}", run.stdout, run.stderr);
    assert!(!all.contains(KEY), "the key stands where it must not");
}

#[test]
fn runs_do_not_fail_over_lineage_and_it_tells_of_their_failures() {
    let bench = prepared();
    bench.append("job.toml", "[lineage]\nfile = \"lineage.jsonl\"\nurl = \"http://127.0.0.1:1\"\n");
    let run = bench.does("explain", &[]).ok();
    assert!(run.stderr.contains("no lineage of this run: http://127.0.0.1:1/"), "{}", run.stderr);
    bench.does(
        "explain",
        &["--override", "input.where=income > 1", "--override", "output.dir=other"],
    );
    bench.does("explain", &["--override", "input.key=nobody"]).says(1, &expect![[r#"
        error: DIR/applications: has no column `nobody`
          hint: its columns are `application_id`, `applied_on`, `age`, `income`, `debt`, `savings`, `loan_amount`, `loan_term_months`, `credit_history_months`, `late_payments`, `open_accounts`, `employment` and 7 more
    "#]]);
    let kinds: Vec<Value> = told(&bench).iter().map(|event| event["eventType"].clone()).collect();
    assert_eq!(kinds, ["START", "COMPLETE", "START", "COMPLETE", "START", "FAIL"]);
    let last = &told(&bench)[5];
    let message = last["run"]["facets"]["errorMessage"]["message"].as_str().expect("a message");
    assert!(message.contains("nobody"), "{message}");
    let wrong = ["--override", "lineage.url=https://user:secret@host"];
    bench.does("explain", &wrong).says(1, &expect![[r#"
        error: --override: `lineage.url` holds credentials or parameters, expected the key in `OPENLINEAGE_API_KEY`
    "#]]);
}
