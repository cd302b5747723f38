#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::wakeup {

/// The network namespace of this process: the same number in all processes that can reach each
/// other's mailboxes, another one on each other machine and in each other namespace. Returns
/// nullopt if it cannot be found out: then there are no mailboxes.
[[nodiscard]] std::optional<std::int64_t> network_namespace() noexcept;

/// Receives messages for one client from others on its machine, past the database, which would wake
/// many for it (PostgreSQL signals every listener), cannot notify (SQLite), or takes a round trip
/// and a connection (MySQL).
///
/// A datagram socket in the abstract namespace of Linux: it is not a file, so a crash leaves
/// nothing behind, and it needs no writable folder. It is reached from the same network namespace
/// only; the database notifies clients elsewhere. A message is a hint: it may be lost, late,
/// doubled or forged. Every process there may send, and may read the names of all mailboxes in
/// /proc/net/unix: they reveal nothing. A message that is to be believed carries a proof.
class mailbox {
public:
    /// So many datagrams at once, none of them of use, are a flood. A true message then finds the
    /// mailbox full and goes through the database, or comes so much later.
    static constexpr std::size_t flood = 32;
    static constexpr std::chrono::milliseconds rest_from_flood{5};

    /// Opens one descriptor.
    /// @param number random, and not known to others before this call, so that it is free
    /// @throws error errc::unsupported if no descriptor is left, or another mailbox has this number
    explicit mailbox(std::int64_t number);
    mailbox(const mailbox&) = delete;
    mailbox& operator=(const mailbox&) = delete;
    ~mailbox();

    /// Readable if a datagram has arrived. To be polled, not read.
    [[nodiscard]] int descriptor() const noexcept { return socket_; }
    /// Returns the datagrams that have arrived, some dozens at most. Never waits.
    [[nodiscard]] std::vector<std::string> take() const;

private:
    int socket_ = -1;
};

/// Sends to a mailbox, if it can be reached from here.
class mailbox_sender {
public:
    /// @param in the network namespace in which it was opened; nullopt if there is none. In another
    /// one a socket of that name would be a stranger's, and is not contacted.
    mailbox_sender(std::int64_t number, std::optional<std::int64_t> in) noexcept;
    mailbox_sender(mailbox_sender&& other) noexcept;
    mailbox_sender& operator=(mailbox_sender&&) = delete;
    ~mailbox_sender();

    [[nodiscard]] bool reachable() const noexcept { return socket_ >= 0; }
    /// 1 to 128 bytes. Never waits. Returns false if the mailbox is gone or full.
    [[nodiscard]] bool post(std::string_view text) const noexcept;

private:
    int socket_ = -1;
};

}  // namespace rowlock::wakeup
