pub const FAMILY: commands::command::Family =
    commands::command::Family { group: commands::command::Group::Server, commands: &[] };
