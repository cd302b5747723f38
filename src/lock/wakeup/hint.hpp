#pragma once

#include <rowlock/ids.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Messages to a session outside the tables, by NOTIFY or by datagram, and why they may be
/// believed: each ends with a proof that only a client that can read the session's row can make.
/// Others can send messages, which are ignored.
namespace rowlock::wakeup {

/// Where a session receives messages, and the secret that proves them: columns of its row.
struct wake_address {
    std::int64_t number = 0;  ///< random; names its channel and its mailbox
    std::string secret{};     ///< 32 hexadecimal digits; never sent
    /// The network namespace of its mailbox; nullopt if it has none.
    std::optional<std::int64_t> mailbox{};
};

/// Makes a new address, without a mailbox.
/// @throws std::exception if the kernel has no random numbers
[[nodiscard]] wake_address random_wake_address();

/// The channel on which PostgreSQL notifies a session.
[[nodiscard]] std::string notification_channel(const wake_address& of);

/// A queue entry was served.
struct announced_grant {
    rowlock::grant_id grant_id{};
    std::int64_t token = 0;
    bool asynchronous = false;  ///< the commit may not be on disk yet
    friend bool operator==(const announced_grant&, const announced_grant&) = default;
};

/// "<grant id> <token> <1 if asynchronous, else 0> <proof>". The fragment `proved_words` of
/// PostgreSQL's statements writes the same.
[[nodiscard]] std::string encode_wakeup(const announced_grant& grant, std::string_view secret);

/// Parses such a text, whatever its proof is worth. Returns nullopt if it is something else.
[[nodiscard]] std::optional<announced_grant> decode_wakeup(std::string_view message) noexcept;

/// "look <revision> <proof>": another client has changed rows of the session, whose revision
/// is this by now. The session sends its next heartbeat earlier, and finds the change.
[[nodiscard]] std::string encode_look(std::int64_t revision, std::string_view secret);

/// Parses the revision, whatever the proof is worth. Returns nullopt for any other text.
[[nodiscard]] std::optional<std::int64_t> decode_look(std::string_view message) noexcept;

/// Whether the text ends with a proof made with this secret.
[[nodiscard]] bool is_proved(std::string_view message, std::string_view secret);

}  // namespace rowlock::wakeup
