//! The `pannier` command: runs, checks and explains chains of network functions.
//!
//! Exit status: 0 done; 1 a promise was broken; 2 bad usage or chain file; 3 the input could not be read, or the output
//! not be written; 130 stopped before it was done.

mod bench;
mod check;
mod lab;
mod live;
mod log;
mod nfs;
mod run;
mod sim;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};

/// Network functions whose state survives: nothing that left the chain is ever forgotten.
#[derive(Debug, Parser)]
#[command(name = "pannier", version, next_line_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Lab(lab::Args),
    Check(check::Args),
    Nfs(nfs::Args),
    Bench(bench::Args),
    Log(log::Args),
    Sim(sim::Args),
}

/// How the command ends, where it does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// A promise was broken.
    Promise,
    /// Bad usage or a bad chain file.
    Usage,
    /// Input that can't be read, or output that can't be written.
    Files,
    /// Somebody stopped it before it was done.
    Interrupted,
}

type Ended = Result<(), Failure>;

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::Check(args) => check::check(&args),
        Command::Nfs(args) => nfs::nfs(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Log(args) => log::log(&args),
        Command::Sim(args) => sim::sim(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Promise) => ExitCode::from(1),
        Err(Failure::Usage) => ExitCode::from(2),
        Err(Failure::Files) => ExitCode::from(3),
        Err(Failure::Interrupted) => ExitCode::from(130),
    }
}

/// Tells a person why the command ends, and ends it.
fn fail<T>(failure: Failure, why: impl Display) -> Result<T, Failure> {
    // Nothing is left to do where even this can't be written.
    let _ = writeln!(io::stderr(), "pannier: {why}");
    Err(failure)
}

/// Prints a result. A reader that has gone away is no failure.
fn print(text: impl Display) -> Ended {
    match write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(Failure::Files, format_args!("standard output can't be written: {error}"))
        }
        _ => Ok(()),
    }
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the command at once.
fn stop_on_interrupt() -> Arc<AtomicBool> {
    stop_on_interrupt_or(|| {})
}

/// As [`stop_on_interrupt`]; `clear_up` is done before the command ends at once.
fn stop_on_interrupt_or(clear_up: impl Fn() + Send + 'static) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            clear_up();
            std::process::exit(130);
        }
    });
    if let Err(error) = handler {
        let _ = writeln!(io::stderr(), "pannier: Ctrl-C will end the command without a summary: {error}");
    }
    stop
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        // Goal: no contradiction in the definitions of arguments. Method: clap's own check.
        Cli::command().debug_assert();
    }

    #[test]
    fn help_fits_a_terminal() {
        // Goal: nobody scrolls sideways. Method: the help of each command, line by line.
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands_mut() {
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
                }
            }
        }
    }
}
