//! Runs in shards: whichever process explains which share of the splits, in whatever order, what is published is what
//! one run would have published.

use std::fs;
use std::time::Duration;

use expect_test::expect;

use crate::fitted::{applications, generator, with_generator};
use crate::stores::Lake;
use crate::util::{Bench, Run, read_table, same_rows};

/// A run of a dozen splits.
fn prepared() -> Bench {
    let bench = Bench::new();
    let table = applications(&bench, 12_000, &["--files", "2", "--nulls", "0.01"]);
    bench.explain_job(&table, "split_rows = 1000\nsamples = 2\n");
    bench
}

fn shard(bench: &Bench, shard: &str) -> Run {
    bench.does("run", &["--shard", shard])
}

fn same_tables(bench: &Bench, whole: &Bench) {
    let reports = ["coverage", "validity", "sparsity", "plausibility", "features", "mmd"];
    let reports = reports.map(|report| format!("reports/{report}.parquet"));
    let tables = ["counterfactuals", "rejects"].map(String::from);
    for table in tables.iter().chain(&reports) {
        let read = |bench: &Bench| read_table(&bench.path("out").join(table));
        assert!(same_rows(&read(bench), &read(whole)), "{table} is another");
    }
}

#[test]
fn shards_in_any_order_give_the_tables_of_one_run() {
    let (whole, bench) = (prepared(), prepared());
    let run = whole.does("run", &[]).ok().json();
    for (number, threads) in [(2, "1"), (5, "2"), (1, "2"), (4, "1"), (3, "1")] {
        let arguments = ["--shard", &format!("{number}/5"), "--threads", threads];
        let summary = bench.does("run", &arguments).ok().json();
        assert_eq!(summary["splits_resumed"], 0);
        assert!(!bench.path("out").exists(), "visible before all is there");
    }
    // A shard that is finished has nothing left to do.
    let again = shard(&bench, "4/5").ok().json();
    assert_eq!(again["splits_resumed"], again["splits"]);
    assert!(again["splits"].as_u64() > Some(0), "{again}");
    let published = bench.does("publish", &[]).ok().json();
    same_tables(&bench, &whole);
    for counted in ["rows_read", "rows_explained", "rows_rejected", "statuses"] {
        assert_eq!(published[counted], run[counted], "{counted}");
    }
    bench.nothing_is_left();
    assert!(!bench.path(".out.shards").exists());
    Run::of(crate::util::program().args(["verify", &bench.text("out"), "--inputs"])).ok();
    // Whoever comes late is told so.
    assert_eq!(bench.does("publish", &[]).ok().json()["already_published"], true);
    assert_eq!(shard(&bench, "3/5").ok().json()["already_published"], true);
    assert!(!bench.path(".out.shards").exists());
}

#[test]
fn a_killed_shard_is_resumed_and_publishing_may_be_killed() {
    let (whole, bench) = (prepared(), prepared());
    whole.does("run", &[]).ok();
    shard(&bench, "2/2").ok();
    let journal = bench.path(".out.shards/.00001-of-00002.journal/journal.jsonl");
    let finished = || {
        let journal = fs::read_to_string(&journal).unwrap_or_default();
        journal.lines().filter(|line| line.starts_with("{\"split\"")).count()
    };
    let mut child =
        bench.command("run", &["--shard", "1/2", "--threads", "1"]).spawn().expect("started");
    while finished() < 2 {
        assert!(child.try_wait().expect("a process").is_none(), "ended early");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let summary = shard(&bench, "1/2").ok().json();
    assert!(summary["splits_resumed"].as_u64() >= Some(2), "{summary}");
    // At any moment of publishing.
    for wait in [20, 150, 400] {
        let mut child = bench.command("publish", &[]).spawn().expect("started");
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        child.wait().expect("ended");
    }
    bench.does("publish", &[]).ok();
    same_tables(&bench, &whole);
    bench.nothing_is_left();
    assert!(!bench.path(".out.shards").exists());
}

#[test]
fn what_cannot_be_published_is_named() {
    let bench = prepared();
    let mut said = bench.refusal("no shards", &bench.does("publish", &[]));
    shard(&bench, "1/3").ok();
    said += &bench.refusal("shards are missing", &bench.does("publish", &[]));
    shard(&bench, "2/3").ok();
    shard(&bench, "3/3").ok();
    let journal = ".out.shards/.00002-of-00003.journal/journal.jsonl";
    let whole = fs::read_to_string(bench.path(journal)).expect("a journal");
    let lines: Vec<&str> = whole.lines().collect();
    bench.write(journal, &format!("{}\n", lines[..lines.len() - 1].join("\n")));
    said += &bench.refusal("a split is missing", &bench.does("publish", &[]));
    bench.write(journal, &whole);
    let part = ".out.shards/.00003-of-00003.staging/counterfactuals/part-00002.parquet";
    let content = fs::read(bench.path(part)).expect("a file");
    fs::write(bench.path(part), &content[1..]).expect("cut short");
    said += &bench.refusal("a file is cut short", &bench.does("publish", &[]));
    fs::write(bench.path(part), content).expect("mended");
    let other = ["--override", "runtime.seed=7"];
    said += &bench.refusal("another seed", &bench.does("publish", &other));
    bench.does("run", &[&["--shard", "1/2"][..], &other].concat()).ok();
    bench.does("run", &[&["--shard", "1/4"][..], &other].concat()).ok();
    said += &bench.refusal("two numbers", &bench.does("publish", &other));
    let generator = with_generator("");
    let line = generator.lines().nth(1).expect("the generator's");
    bench.replace("job.toml", &format!("{line}\n"), "");
    said += &bench.refusal("no generator", &shard(&bench, "1/2"));
    expect![[r#"
        # no shards
        error: DIR/out: has no shards of this run beside it
          hint: `overturn run JOB --shard I/N` explains one of N shards

        # shards are missing
        errors:
        DIR/out: shard 2/3 has not begun
          hint: run `overturn run JOB --shard 2/3`, then publish
        DIR/out: shard 3/3 has not begun
          hint: run `overturn run JOB --shard 3/3`, then publish

        # a split is missing
        error: DIR/out: shard 2/3 has finished 2 of 3 splits
          hint: run `overturn run JOB --shard 2/3`, then publish

        # a file is cut short
        error: DIR/out: shard 3/3 has finished 2 of 3 splits
          hint: run `overturn run JOB --shard 3/3`, then publish

        # another seed
        errors:
        DIR/out: shard 1/3 is of another run: the seed changed since
          hint: run `overturn run JOB --shard 1/3`, then publish
        DIR/out: shard 2/3 is of another run: the seed changed since
          hint: run `overturn run JOB --shard 2/3`, then publish
        DIR/out: shard 3/3 is of another run: the seed changed since
          hint: run `overturn run JOB --shard 3/3`, then publish

        # two numbers
        error: DIR/out: has shards of this run by 2 and by 4 beside it
          hint: remove those that are not to be published from `.<dir>.shards`, or in a store from `_overturn/shards`

        # no generator
        error: explain.generator: is missing, expected the folder of a fitted generator, which all shards share
          hint: `overturn train JOB` makes one, also where rows are searched without networks

    "#]].assert_eq(&said);
    assert!(!bench.path("out").exists());
    let run = shard(&bench, "4/3");
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(run.stderr.contains("expected I/N with I from 1 to N"), "{}", run.stderr);
}

#[test]
fn a_shard_of_another_night_is_begun_anew() {
    let (whole, bench) = (prepared(), prepared());
    whole.does("run", &[]).ok();
    bench.does("run", &["--shard", "1/2", "--override", "runtime.seed=7"]).ok();
    bench.does("run", &["--shard", "2/4", "--override", "runtime.seed=7"]).ok();
    let summary = shard(&bench, "1/2").ok().json();
    assert_eq!(summary["splits_resumed"], 0);
    shard(&bench, "2/2").ok();
    bench.does("publish", &[]).ok();
    same_tables(&bench, &whole);
    assert!(!bench.path(".out.shards").exists());
}

#[test]
fn shards_on_several_machines_meet_in_a_store() {
    let Some(lake) = Lake::new("shards", 6_000) else { return };
    let generator = format!("generator = \"{}\"", generator().display());
    lake.bench.replace("job.toml", "method = \"search\"", &generator);
    let local = lake.bench.text("local");
    lake.run("a", &local, &[]).ok();
    for (machine, shard) in [("c", "3/3"), ("b", "2/3"), ("a", "1/3")] {
        lake.run(machine, "out", &["--shard", shard]).ok();
    }
    let visible = |name: &String| !name.starts_with("_overturn/");
    assert!(!lake.names("out").iter().any(visible), "visible before it is decided");
    // Begun again on another machine, a shard finds what is finished.
    let again = lake.run("d", "out", &["--shard", "2/3"]).ok().json();
    assert_eq!(again["splits_resumed"], again["splits"]);
    lake.publish("e", "out").ok();
    lake.same("out", "local");
    assert_eq!(lake.names("out/_overturn"), ["commit.json"]);
    assert_eq!(lake.publish("f", "out").ok().json()["already_published"], true);
}
