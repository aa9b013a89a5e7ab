//! Tables, models and results in an object store: a real S3 server on loopback, which the tests start. What runs promise
//! there holds for kills and for two runs at once as on this machine. `tests/stores.sh` does more of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use expect_test::expect;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::fitted::{APPROVED, applications};
use crate::util::{Bench, Run, program, project, python, read_table, same_rows};

const KEY: &str = "planted-key-id-0001";
const SECRET: &str = "planted-secret-0002";

/// The server ends with whoever holds its standard input: the tests' process.
const SERVER: &str = "import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(['-H', '127.0.0.1', '-p', sys.argv[1]])";

/// A moto server, shared by all tests.
struct Server {
    port: u16,
    _process: Child,
}

/// The port of the server, or none where there is no Python environment.
fn server(test: &str) -> Option<u16> {
    static SERVER_OF_ALL: OnceLock<Option<Server>> = OnceLock::new();
    let started = SERVER_OF_ALL.get_or_init(|| {
        let python = python(test)?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let mut command = Command::new(&python);
        command.args(["-c", SERVER, &port.to_string()]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let began = Instant::now();
        while put(port, "/lake").is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "the server does not start");
            let ended = process.try_wait().expect("a process");
            assert!(ended.is_none(), "no moto in {}: run jobs/setup.sh", python.display());
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Server { port, _process: process })
    });
    started.as_ref().map(|server| server.port)
}

/// Makes a bucket; none while nobody listens.
fn put(port: u16, path: &str) -> Option<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!(
        "PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(())
}

/// A bench with a table and models in the store, each test below a prefix of its own.
pub struct Lake {
    pub bench: Bench,
    prefix: &'static str,
    port: u16,
    store: AmazonS3,
    tokio: tokio::runtime::Runtime,
}

impl Lake {
    pub fn new(prefix: &'static str, rows: u64) -> Option<Lake> {
        let port = server(prefix)?;
        let store = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{port}"))
            .with_allow_http(true)
            .with_bucket_name("lake")
            .with_access_key_id(KEY)
            .with_secret_access_key(SECRET)
            .build()
            .expect("a store");
        let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("ok");
        let lake = Lake { bench: Bench::new(), prefix, port, store, tokio };
        let table = applications(&lake.bench, rows, &["--files", "2", "--nulls", "0.01"]);
        for entry in std::fs::read_dir(&table).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            lake.upload(&format!("table/{name}"), &std::fs::read(entry.path()).expect("readable"));
        }
        for file in ["jobs/demo/logistic.onnx", "schemas/credit.toml"] {
            let name = file.rsplit('/').next().expect("a name");
            lake.upload(name, &std::fs::read(project().join(file)).expect("readable"));
        }
        lake.bench.job(
            "${in}/table",
            "schema = \"${in}/credit.toml\"\nmax_reject_share = 0.5",
            Some("kind = \"onnx\"\nmodel = \"${in}/logistic.onnx\""),
        );
        lake.bench.replace("job.toml", "dir = \"out\"", "dir = \"${out}\"");
        lake.bench.append(
            "job.toml",
            &format!("{APPROVED}[explain]\nsplit_rows = 1000\nmethod = \"search\"\n"),
        );
        Some(lake)
    }

    fn url(&self, name: &str) -> String {
        format!("s3://lake/{}/{name}", self.prefix)
    }

    fn key(&self, name: &str) -> Key {
        Key::from(format!("{}/{name}", self.prefix))
    }

    fn upload(&self, name: &str, content: &[u8]) {
        let key = self.key(name);
        let put = self.store.put(&key, content.to_vec().into());
        self.tokio.block_on(put).expect("uploaded");
    }

    fn text(&self, name: &str) -> Option<String> {
        let read = async { self.store.get(&self.key(name)).await?.bytes().await };
        let content = self.tokio.block_on(read).ok()?;
        Some(String::from_utf8(content.to_vec()).expect("text"))
    }

    pub fn names(&self, prefix: &str) -> Vec<String> {
        let (root, below) = (self.key(prefix), format!("{}/{prefix}/", self.prefix));
        let list = self.store.list(Some(&root)).map_ok(|found| found.location.to_string());
        let names: Vec<String> = self.tokio.block_on(list.try_collect()).expect("listed");
        names.iter().filter_map(|name| name.strip_prefix(&below)).map(String::from).collect()
    }

    /// What readers see of results, as a folder.
    fn fetch(&self, prefix: &str) -> std::path::PathBuf {
        let folder = self.bench.path(&format!("fetched/{prefix}"));
        // Files of what stood there before are no part of it.
        let _ = std::fs::remove_dir_all(&folder);
        for name in
            self.names(prefix).iter().filter(|name| !name.starts_with('_') || *name == "_SUCCESS")
        {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let read = async {
                self.store.get(&self.key(&format!("{prefix}/{name}"))).await?.bytes().await
            };
            std::fs::write(path, self.tokio.block_on(read).expect("read")).expect("written");
        }
        folder
    }

    /// `run` on a machine: what its cache holds is its own.
    fn command(&self, machine: &str, out: &str, arguments: &[&str]) -> Command {
        self.command_of("run", machine, (out, arguments))
    }

    fn command_of(&self, name: &str, machine: &str, (out, arguments): (&str, &[&str])) -> Command {
        let mut command = program();
        let out = if out.starts_with('/') { out.to_string() } else { self.url(out) };
        command.args([name, &self.bench.text("job.toml"), "--format", "json"]);
        command.args(["--set", &format!("in={}", self.url("").trim_end_matches('/'))]);
        command.args(["--set", &format!("out={out}")]).args(arguments);
        command.env("XDG_CACHE_HOME", self.bench.path(machine));
        environment(&mut command, self.port);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, machine: &str, out: &str, arguments: &[&str]) -> Run {
        self.told(self.command(machine, out, arguments))
    }

    /// Publishes what shards have finished.
    pub fn publish(&self, machine: &str, out: &str) -> Run {
        self.told(self.command_of("publish", machine, (out, &[])))
    }

    fn told(&self, mut command: Command) -> Run {
        let run = Run::of(&mut command);
        for told in [&run.stdout, &run.stderr] {
            assert!(!told.contains(SECRET) && !told.contains(KEY), "a secret is told: {told}");
        }
        run
    }

    pub fn same(&self, prefix: &str, local: &str) {
        let found = self.fetch(prefix);
        for table in
            ["counterfactuals", "rejects", "reports/validity.parquet", "reports/mmd.parquet"]
        {
            let expected = read_table(&self.bench.path(local).join(table));
            let found = read_table(&found.join(table));
            let columns = expected.columns().iter().zip(found.columns());
            let differs = columns.map(|(expected, found)| expected != found);
            let fields = expected.schema();
            let differing = differs.zip(fields.fields()).filter(|(differs, _)| *differs);
            let differing: Vec<&str> = differing.map(|(_, field)| field.name().as_str()).collect();
            assert_eq!(differing, [""; 0], "{prefix}: {table}");
            assert!(same_rows(&found, &expected), "{prefix}: {table}");
        }
    }
}

fn environment(command: &mut Command, port: u16) {
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT"] {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_REGION", "us-east-1").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
}

#[test]
fn from_a_store_into_a_store_the_rows_are_those_of_a_local_run() {
    let Some(lake) = Lake::new("whole", 6_000) else { return };
    let local = lake.bench.text("local");
    lake.run("a", &local, &[]).ok();
    let run = lake.run("a", "out", &[]).ok();
    assert_eq!(run.json()["output"], lake.url("out"));
    lake.same("out", "local");
    let manifest = lake.text("out/manifest.json").expect("a manifest");
    assert!(!manifest.contains(SECRET) && !manifest.contains(KEY), "{manifest}");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["job"]["output"]["dir"], lake.url("out"));
    assert_eq!(manifest["job"]["input"]["schema"], lake.url("credit.toml"));
    let input = &manifest["run"]["inputs"][0];
    assert_eq!(input["path"], lake.url("table/part-00000.parquet"));
    assert!(input["etag"].is_string() && input["sha256"] == "", "{input}");
    let folder = lake.fetch("out").display().to_string();
    let mut verify = program();
    environment(verify.args(["verify", &folder, "--inputs"]), lake.port);
    Run::of(&mut verify).ok();
    // Nothing is left but the decision, and the same again is no work.
    assert_eq!(lake.names("out/_overturn"), ["commit.json"]);
    assert_eq!(lake.run("b", "out", &[]).ok().json()["already_published"], true);
    let other = ["--override", "explain.split_rows=2000"];
    lake.run("b", "out", &other).says(
        2,
        &expect![[r#"
        error: s3://lake/whole/out: already holds the results of a run
          hint: choose another `output.dir`, or set `overwrite = true` in [output]
    "#]],
    );
    lake.run("b", "out", &[&other[..], &["--override", "output.overwrite=true"]].concat()).ok();
    lake.same("out", "local");
    lake.run("a", "table", &[]).says(1, &expect![[r#"
        error: output.dir: is `s3://lake/whole/table`, which holds, or lies in, `s3://lake/whole/table` (input.features)
          hint: choose another `output.dir`
    "#]]);
}

#[test]
fn a_killed_run_is_resumed_on_another_machine() {
    let Some(lake) = Lake::new("killed", 8_000) else { return };
    lake.run("a", &lake.bench.text("local"), &[]).ok();
    let mut child = lake.command("a", "out", &["--threads", "1"]).spawn().expect("started");
    let entries = |lake: &Lake| {
        let names = lake.names("out/_overturn");
        names.iter().filter(|name| name.contains("/journal/")).count()
    };
    while entries(&lake) < 5 {
        if child.try_wait().expect("a process").is_some() {
            panic!("ended early: {:?}", Run::from(child.wait_with_output().expect("ended")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let visible = |name: &String| !name.starts_with("_overturn/");
    assert!(!lake.names("out").iter().any(visible), "visible before it is decided");
    // Another job does not resume from it.
    let other = ["--resume", "--override", "runtime.seed=7"];
    lake.run("b", "out", &other).says(
        1,
        &expect![[r#"
        error: s3://lake/killed/out: cannot be resumed: the seed changed since the run was stopped
          hint: run without `--resume` to start over
    "#]],
    );
    let run = lake.run("b", "out", &["--resume"]).ok();
    let resumed = run.json()["splits_resumed"].as_u64().expect("a count");
    assert!(resumed >= 3, "{resumed} of its splits were used");
    lake.same("out", "local");
}

/// The version of a Delta table is that with which the run began, also where the journal comes from the store.
#[test]
fn a_run_resumed_on_another_machine_reads_the_version_that_it_began_with() {
    let Some(lake) = Lake::new("pinned", 8_000) else { return };
    let python = python("a_run_resumed_on_another_machine").expect("the server has started");
    let append = |rows: &str| {
        let mut command = Command::new(&python);
        command.arg(project().join("tests/python/delta_tables.py"));
        command.args(["append", &lake.url("delta"), rows]).env("AWS_CONDITIONAL_PUT", "etag");
        environment(&mut command, lake.port);
        Run::of(&mut command).ok().json()["version"].as_u64().expect("a version")
    };
    let table = lake.bench.path("applications/part-00000.parquet");
    assert_eq!(append(&table.display().to_string()), 0);
    lake.bench.replace(
        "job.toml",
        "\"${in}/table\"",
        "{ url = \"${in}/delta\", format = \"delta\" }",
    );
    lake.bench.replace("job.toml", "split_rows = 1000", "split_rows = 300");
    let mut child = lake.command("a", "out", &["--threads", "1"]).spawn().expect("started");
    let begun = |name: &String| name.ends_with("/journal/00000003.json");
    while !lake.names("out/_overturn").iter().any(begun) {
        if child.try_wait().expect("a process").is_some() {
            panic!("ended early: {:?}", Run::from(child.wait_with_output().expect("ended")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let other = lake.bench.path("applications/part-00001.parquet");
    assert_eq!(append(&other.display().to_string()), 1);
    let summary = lake.run("b", "out", &["--resume"]).ok().json();
    assert!(summary["splits_resumed"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["rows_read"].as_u64(), Some(read_table(&table).num_rows() as u64));
}

#[test]
fn of_two_runs_at_once_one_publishes() {
    let Some(lake) = Lake::new("twice", 4_000) else { return };
    let start = |machine| lake.command(machine, "out", &[]).spawn().expect("started");
    let runs = [start("a"), start("b")];
    let ended = runs.map(|run| Run::from(run.wait_with_output().expect("ended")));
    let [first, second] = ended;
    let (won, lost) = if first.code == 0 { (first, second) } else { (second, first) };
    won.ok();
    lost.says(2, &expect![[r#"
        error: s3://lake/twice/out: was published meanwhile by another run, HASH; nothing of this one is visible
          hint: two runs had the same `output.dir`: give each its own
    "#]]);
    let names = lake.names("out");
    assert!(names.contains(&"_SUCCESS".to_string()), "{names:?}");
}

/// Bytes that a run says it has read of its table.
fn bytes_read(run: &Run) -> u64 {
    let told = run.stderr.lines().find(|line| line.contains("read from s3://lake"));
    let bytes = told.and_then(|line| line.split_once("bytes=")).map(|(_, rest)| rest.trim());
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{}", run.stderr))
}

#[test]
fn nothing_is_read_twice_and_what_a_predicate_rules_out_not_at_all() {
    let Some(lake) = Lake::new("ranges", 40_000) else { return };
    let files = std::fs::read_dir(lake.bench.path("applications")).expect("a folder").flatten();
    let table: u64 = files.map(|file| file.metadata().expect("a file").len()).sum();
    let whole = lake.run("a", "whole", &["--threads", "1"]).ok();
    let read = bytes_read(&whole);
    assert!(10 * read <= 11 * table, "{read} bytes of {table}");
    // The rows of the first of two files, by the statistics in their footers.
    let keys = read_table(&lake.bench.path("applications/part-00000.parquet"));
    let keys = keys.column_by_name("application_id").expect("a key");
    let keys = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(keys.as_ref());
    let last = arrow::compute::max(keys).expect("rows");
    let within = format!("input.where=application_id <= {last}");
    let half = lake.run("a", "half", &["--threads", "1", "--override", &within]).ok();
    let read = bytes_read(&half);
    assert!(10 * read <= 6 * table, "{read} bytes of {table}");
}

#[test]
fn runs_in_a_store_are_verified_reported_and_compared_with() {
    let Some(lake) = Lake::new("again", 3_000) else { return };
    let does = |command: &str, arguments: &[&str]| {
        let mut does = program();
        does.arg(command).args(arguments).args(["--format", "json"]);
        environment(does.env("XDG_CACHE_HOME", lake.bench.path("c")), lake.port);
        Run::of(&mut does)
    };
    let (monday, job) = (lake.url("monday"), lake.bench.text("job.toml"));
    let verified = || does("verify", &[&monday, "--inputs"]).ok().json();
    let metrics = format!("output.metrics={}", lake.url("metrics.prom"));
    lake.run("a", "monday", &["--override", &metrics]).ok();
    let figures = lake.text("metrics.prom").expect("metrics");
    assert!(figures.contains("overturn_rows{status=\"rejected\"}"), "{figures}");
    let inside = format!("output.metrics={}", lake.url("monday/x"));
    lake.run("a", "monday", &["--override", &inside]).fails(1, &["lies in `output.dir`"]);
    assert_eq!((&verified()["folder"], &verified()["inputs"]), (&monday.clone().into(), &2.into()));
    // Reports anew, by the job and by the manifest alone.
    let tables = lake.names("monday/counterfactuals");
    let sets = [format!("in={}", lake.url("").trim_end_matches('/')), format!("out={monday}")];
    let by = "audit.by=[\"region\"]";
    does("report", &[&job, "--set", &sets[0], "--set", &sets[1], "--override", by]).ok();
    assert!(lake.names("monday").contains(&"reports/audit/groups.parquet".to_string()));
    verified();
    does("audit", &[&monday, "--by", "housing"]).ok();
    let page = lake.text("monday/reports/audit.html").expect("a page");
    assert!(page.contains("housing") && lake.names("monday/counterfactuals") == tables);
    verified();
    // The night after, on another machine.
    let previous = format!("audit.previous={monday}");
    let tuesday = lake.run("b", "tuesday", &["--override", &previous]).ok().json();
    assert!(tuesday["stability"].is_object(), "{tuesday}");
    let manifest = lake.text("tuesday/manifest.json").expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["run"]["previous"]["path"], monday.clone());
    assert_eq!(manifest["job"]["audit"]["previous"], monday.clone());
    does("verify", &[&lake.url("tuesday")]).ok();
    does("verify", &[&lake.url("never")]).fails(1, &["never: does not exist"]);
    lake.upload("monday/rejects/part-00000.parquet", b"PAR1");
    does("verify", &[&monday]).fails(1, &["rejects/part-00000.parquet"]);
    let wednesday = lake.run("b", "wednesday", &["--override", &previous]);
    wednesday.fails(1, &["which is not as it was published"]);
    assert!(!lake.bench.names("c/overturn").iter().any(|name| name.starts_with("apart-")));
}

/// Answers every request in the same way.
fn answering(status: &'static str, body: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let body = if request[..read].starts_with(b"HEAD") { "" } else { body.as_str() };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    port
}

#[test]
fn what_a_store_refuses_is_said_in_words_and_without_secrets() {
    let bench = Bench::new();
    bench.job("s3://lake/table", "", None);
    bench.append("job.toml", APPROVED);
    let said = |status, code: &str| {
        let message = format!("no {KEY} {SECRET}");
        let port = answering(
            status,
            format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"),
        );
        let mut command = program();
        command.args(["validate", &bench.text("job.toml"), "--log", "json"]);
        command.env("XDG_CACHE_HOME", bench.path("cache"));
        environment(&mut command, port);
        let run = Run::of(&mut command);
        assert!(!run.stderr.contains(SECRET) && !run.stderr.contains(KEY), "{}", run.stderr);
        assert_eq!(run.code, 1, "{run:#?}");
        let last = run.stderr.lines().last().expect("a line");
        let told: serde_json::Value = serde_json::from_str(last).expect("JSON");
        format!("{}: {}\n", told["message"].as_str().unwrap_or("?"), told["causes"])
    };
    let wrong = said("403 Forbidden", "InvalidAccessKeyId");
    let denied = said("403 Forbidden", "AccessDenied");
    let bucket = said("404 Not Found", "NoSuchBucket");
    expect![[r#"
        s3://lake/table: the store does not accept the credentials
          hint: check the credentials in the environment (SECURITY.md lists the variables): ["InvalidAccessKeyId: no [redacted] [redacted]"]
        s3://lake/table: access is denied
          hint: reading needs the rights to get and list, writing those to put, copy and delete as well; a key that is wrong may be answered so, too: ["AccessDenied: no [redacted] [redacted]"]
        s3://lake/table: the bucket does not exist
          hint: check the name in the URL, and `endpoint` and `region` of the store: ["NoSuchBucket: no [redacted] [redacted]"]
    "#]].assert_eq(&[wrong, denied, bucket].concat());
}

#[test]
fn secrets_in_a_job_and_urls_that_cannot_be_used_are_refused_at_once() {
    let bench = Bench::new();
    bench.job("s3://key:secret@lake/table", "", None);
    let options = "[storage.\"s3://lake\"]\nsecret_access_key = \"hidden\"\nregion = \"eu-west-1\"\nallow_http = true\n\
                   [storage.\"lake\"]\nregion = 1\n";
    bench.append("job.toml", options);
    bench.replace(
        "job.toml",
        "dir = \"out\"",
        "dir = \"ftp://host/out\"\nmetrics = \"https://lake/m\"",
    );
    let run = Run::of(program().args(["validate", &bench.text("job.toml")]));
    assert!(!run.stderr.contains("hidden") && !run.stderr.contains("key:secret"), "{}", run.stderr);
    bench.fails_with(&run, 1, &expect![[r#"
        errors:
        DIR/job.toml:12: `storage."lake"` is a URL which has the scheme ``, expected `s3`, `gs`, `az`, `abfss` or `file`
          hint: a section is called `[storage."s3://bucket"]`
        DIR/job.toml:12: `storage."s3://lake".secret_access_key` is a secret, which a job file must not hold
          hint: set it in the environment, as `AWS_SECRET_ACCESS_KEY`
        DIR/job.toml:2: `input.features` is `s3://[redacted]@lake/table`, which holds credentials, expected them in the environment
        DIR/job.toml:10: `output.dir` is `ftp://host/out`, which has the scheme `ftp`, expected `s3`, `gs`, `az`, `abfss` or `file`
        DIR/job.toml:11: `output.metrics` is `https://lake/m`, which has the scheme `https`, expected `s3`, `gs`, `az`, `abfss` or `file`
    "#]]);
}
