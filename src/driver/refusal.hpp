#pragma once

#include <rowlock/error.hpp>

namespace rowlock::driver {

/// The error for what a server answered: says what to do, and quotes the server where its words
/// hold no values of ours (a missing table, a denied right), else leaves them to server_message().
[[nodiscard]] error refusal(errc kind, error::server_report report);

/// The error for a call on a connection that is known to be dead. Nothing was sent.
[[nodiscard]] error already_dead();

/// The error for a call whose deadline has passed before it began. Nothing was sent.
[[nodiscard]] error too_late();

/// The error for a connection that broke after something was sent.
[[nodiscard]] error broken(error::server_report report = {});

/// The error for a deadline that passed without an answer, after something was sent.
[[nodiscard]] error unanswered();

/// The error for a deadline that passed before there was a connection.
[[nodiscard]] error not_connected();

}  // namespace rowlock::driver
