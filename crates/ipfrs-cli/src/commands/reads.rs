//! Commands that only read. They create no repo: a path without one is probably mistyped.

use crate::args::{
    AuthCommand, AuthKeyCommand, BlockCommand, Command, DagCommand, FilesCommand, FilestoreCommand, KeyCommand,
    MigrateCommand, NameCommand, PeeringCommand, PinCommand, RemotePinCommand, RemoteServiceCommand, SwarmCommand,
};

/// Returns whether a command needs a repo, or a daemon, that exists.
pub(super) fn needs_repo(command: &Command) -> bool {
    match command {
        Command::Cat(_)
        | Command::Get(_)
        | Command::Ls(_)
        | Command::Tensor(_)
        | Command::Resolve(_)
        | Command::Refs(_)
        | Command::Ping(_)
        | Command::Stats(_) => true,
        Command::Auth(command) => matches!(command, AuthCommand::Whoami | AuthCommand::Key(AuthKeyCommand::List)),
        Command::Block(command) => matches!(command, BlockCommand::Get { .. } | BlockCommand::Stat { .. }),
        Command::Dag(command) => !matches!(command, DagCommand::Import(_) | DagCommand::Put(_)),
        Command::Files(command) => {
            matches!(command, FilesCommand::Ls { .. } | FilesCommand::Stat { .. } | FilesCommand::Read { .. })
        }
        Command::Filestore(FilestoreCommand::Ls(_) | FilestoreCommand::Verify(_) | FilestoreCommand::Dups) => true,
        Command::Key(command) => matches!(command, KeyCommand::List(_)),
        Command::Migrate(command) => matches!(command, MigrateCommand::Export(_)),
        Command::Name(command) => matches!(command, NameCommand::Resolve(_) | NameCommand::Get { .. }),
        Command::Pin(PinCommand::Remote(command)) => {
            matches!(command, RemotePinCommand::Ls(_) | RemotePinCommand::Service(RemoteServiceCommand::Ls { .. }))
        }
        Command::Pin(command) => matches!(command, PinCommand::Ls(_) | PinCommand::Verify(_)),
        Command::Swarm(command) => matches!(
            command,
            SwarmCommand::Peers { .. }
                | SwarmCommand::Addrs
                | SwarmCommand::Listen
                | SwarmCommand::Peering(PeeringCommand::Ls)
        ),
        _ => false,
    }
}
