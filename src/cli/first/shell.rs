//! `veilstream completions` and `veilstream man`: made from the same description of the arguments that `--help` prints.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::shared::{Failure, print_bytes};

/// Prints a completion script for a shell
///
/// bash: veilstream completions bash > ~/.local/share/bash-completion/completions/veilstream; zsh: into a folder of $fpath, as
/// _veilstream; fish: ~/.config/fish/completions/veilstream.fish; powershell: append it to $PROFILE.
#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the manual page, or writes one page per command into a folder
#[derive(Debug, Args)]
pub(in crate::cli) struct ManArgs {
    /// Write veilstream.1 and one page per command into this folder instead
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(in crate::cli) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "veilstream", &mut script);
    print_bytes(&script)
}

pub(in crate::cli) fn man(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let command = command.disable_help_subcommand(true);
    let Some(folder) = &args.output else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.map_err(|error| Failure::io("cannot make the manual page", &error))?;
        return print_bytes(&page);
    };
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| Failure::io(&format!("cannot write into {}", folder.display()), &error))
}
