//! The commands that a developer and the continuous check share, each written as one would type it.

use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Formats every crate.
pub(crate) const FORMAT: Step = Step::new("cargo fmt --all");
/// Looks whether every crate is formatted.
pub(crate) const FORMAT_CHECK: Step = Step::new("cargo fmt --all --check");
/// Lints libraries, binaries, tests and examples.
pub(crate) const LINT: Step = Step::new("cargo clippy --workspace --all-targets --locked -- -D warnings");
/// Builds the documentation of our own crates.
pub(crate) const DOC: Step =
    Step::new("cargo doc --workspace --no-deps --locked").with_env(&[("RUSTDOCFLAGS", "-D warnings")]);
/// Runs all tests, as the README says it.
pub(crate) const TEST: Step = Step::new("cargo test --workspace --locked");
/// The same with the tests' own output, which the test harness otherwise keeps for failures.
pub(crate) const TEST_ALOUD: Step = Step { env: &[("RUST_TEST_NOCAPTURE", "1")], ..TEST };
/// Lints everything with what is compiled for DPDK only.
pub(crate) const DPDK_LINT: Step = Step::new(
    "cargo clippy --workspace --all-targets --locked \
     --features pannier/dpdk,pannier-runtime/dpdk,pannier-tests/dpdk -- -D warnings",
);
/// Tests the ports of DPDK.
pub(crate) const DPDK_TEST_ALOUD: Step = Step::new(
    "cargo test --locked -p pannier-runtime -p pannier-tests \
     --features pannier-runtime/dpdk,pannier-tests/dpdk --lib --test ports --test allocations dpdk",
)
.with_env(TEST_ALOUD.env);

/// Tries every interleaving of what shards share. It has a directory of its own: all crates are built anew for it.
pub(crate) const INTERLEAVINGS: Step =
    Step::new("cargo test --locked --target-dir target/loom -p pannier-runtime --lib loom")
        .with_env(&[("RUSTFLAGS", "--cfg loom")]);

/// A command line and the environment that it needs.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Words separated by blanks; no quoting.
    pub(crate) command: &'static str,
    env: &'static [(&'static str, &'static str)],
}

impl Step {
    /// A command without an environment of its own.
    pub(crate) const fn new(command: &'static str) -> Self {
        Self { command, env: &[] }
    }

    const fn with_env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }

    /// Runs the command with more arguments; a failing command is an error.
    pub(crate) fn run(&self, more: &[String]) -> anyhow::Result<()> {
        let status = self.prepare().args(more).status().with_context(|| self.starting())?;
        ensure!(status.success(), "`{}` failed: {status}", self.command);
        Ok(())
    }

    /// Runs the command, passes its output on and returns the output lines that contain `mark`, each once.
    pub(crate) fn run_watching(&self, mark: &str) -> anyhow::Result<Vec<String>> {
        let mut child = self
            .prepare()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| self.starting())?;
        let output = child.stdout.take().expect("stdout was asked for as a pipe above");
        let errors = child.stderr.take().expect("stderr was asked for as a pipe above");
        let marked = Mutex::new(Vec::new());
        let copied = std::thread::scope(|scope| {
            let beside = scope.spawn(|| pass_on(errors, std::io::stderr(), mark, &marked));
            let here = pass_on(output, std::io::stdout(), mark, &marked);
            beside.join().expect("copying lines does not panic").and(here)
        });
        let status = child.wait()?;
        copied?;
        ensure!(status.success(), "`{}` failed: {status}", self.command);
        Ok(marked.into_inner().expect("no thread that held the lines panicked"))
    }

    fn prepare(&self) -> Command {
        let mut words = self.command.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).envs(self.env.iter().copied());
        command
    }

    fn starting(&self) -> String {
        format!("starting `{}`", self.command)
    }
}

/// Copies lines, and keeps what follows `mark` (and the mark itself) of those that have it.
fn pass_on(
    from: impl Read,
    mut to: impl Write,
    mark: &str,
    marked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(start) = text.find(mark) {
            let kept = text[start..].trim_end().to_owned();
            let mut marked = marked.lock().expect("no thread that held the lines panicked");
            if !marked.contains(&kept) {
                marked.push(kept);
            }
        }
        line.clear();
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_lines_are_kept_once_and_all_lines_pass() {
        // Goal: a skip is seen wherever it stands in a line, once. Method: copy four lines, two of them the same skip.
        let text = "one\ntest a ... SKIPPED: no captures\nSKIPPED: no captures\nlast without end \u{fffd}";
        let marked = Mutex::new(Vec::new());
        let mut copy = Vec::new();
        pass_on(text.as_bytes(), &mut copy, "SKIPPED:", &marked).expect("memory does not fail");
        assert_eq!(copy, text.as_bytes());
        assert_eq!(marked.into_inner().expect("one thread"), ["SKIPPED: no captures"]);
    }

    #[test]
    fn a_failing_command_is_an_error() {
        // Goal: no step fails in silence. Method: run a command that fails, unwatched and watched.
        let step = Step::new("false");
        assert!(step.run(&[]).is_err());
        assert!(step.run_watching("SKIPPED:").is_err());
    }
}
