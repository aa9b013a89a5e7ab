//! How copies are started: under the guard where there is one, by a thread that never ends. The system
//! tells a process that its parent is gone when the *thread* that started it is, and threads that score
//! come and go.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

use crate::predictor::guard;

/// The guard's program, once it is known that there is one.
static GUARD: OnceLock<PathBuf> = OnceLock::new();

/// Scorers are started under the guard from now on: the binary beside this program's, or else this
/// program, which must call [`guard::main`] first thing.
pub(crate) fn supervise_scorers() {
    let beside = std::env::current_exe().map(|program| program.with_file_name(guard::BINARY));
    let beside = beside.ok().filter(|path| path.is_file());
    GUARD.get_or_init(|| beside.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
}

/// A command that starts a scorer under the guard; `None` where there is no guard.
pub(super) fn guarded(settings: guard::Settings, scorer: &[String]) -> Option<Command> {
    let mut command = Command::new(GUARD.get()?);
    let parent = std::process::id().to_string();
    command.args([guard::SUPERVISE, &parent, &settings.to_argument()]);
    command.args(scorer.iter().map(OsString::from));
    Some(command)
}

type Launch = (Command, Sender<io::Result<Child>>);

/// Starts a process from the thread that outlives all others.
pub(super) fn launch(command: Command) -> io::Result<Child> {
    static LAUNCHER: Mutex<Option<Sender<Launch>>> = Mutex::new(None);
    let mut launcher = LAUNCHER.lock();
    let orders = match &*launcher {
        Some(orders) => orders.clone(),
        None => {
            let (orders, received) = channel();
            thread::Builder::new()
                .name("scorer-launcher".to_string())
                .spawn(move || launch_all(&received))?;
            launcher.insert(orders).clone()
        }
    };
    drop(launcher);
    let (reply, child) = channel();
    let gone = || io::Error::other("the thread that starts scorers is gone");
    orders.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

fn launch_all(orders: &Receiver<Launch>) {
    for (mut command, reply) in orders {
        // Whoever asked waits for the answer.
        let _ = reply.send(command.spawn());
    }
}
