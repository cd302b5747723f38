#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::wakeup {

/// The network namespace that this process is in: the same number in all processes that can reach
/// each other's mailboxes, another one on each other machine and in each other namespace. Nothing
/// if it cannot be found out: then there are no mailboxes.
[[nodiscard]] std::optional<std::int64_t> network_namespace() noexcept;

/// Where a client is told by others on its machine what concerns it alone, past the database, which
/// would wake many for it (PostgreSQL signals every listener), has no word for it (SQLite), or
/// takes a round trip and a connection (MySQL).
///
/// A datagram socket in the abstract namespace of Linux: it is no file, so nothing is left behind
/// by a crash, and it needs no folder that may be written. It is reached from the same network
/// namespace only; whoever is elsewhere is told by the database. What comes is a hint: it may be
/// lost, late, doubled or forged. Every process there may send, and may read the names of all
/// mailboxes in /proc/net/unix: they tell nothing. What is to be believed carries a proof.
class mailbox {
public:
    /// So much mail at once, and none of it of use: somebody floods us. What is true finds the
    /// mailbox full, and then the database tells, or comes so much later.
    static constexpr std::size_t flood = 32;
    static constexpr std::chrono::milliseconds rest_from_flood{5};

    /// Opens one descriptor.
    /// @param number random, and not known to others before this call: nobody has taken it
    /// @throws error errc::unsupported if there is none left, or another has this number
    explicit mailbox(std::int64_t number);
    mailbox(const mailbox&) = delete;
    mailbox& operator=(const mailbox&) = delete;
    ~mailbox();

    /// Readable if there is mail. To be polled, not read.
    [[nodiscard]] int descriptor() const noexcept { return socket_; }
    /// What has arrived, some dozens at most. Never waits.
    [[nodiscard]] std::vector<std::string> take() const;

private:
    int socket_ = -1;
};

/// The way to a mailbox, if it can be reached from here.
class mail_to {
public:
    /// @param in the network namespace in which it was opened; nothing: there is none. In another
    /// one a socket of that name would be a stranger's, and is not asked for.
    mail_to(std::int64_t number, std::optional<std::int64_t> in) noexcept;
    mail_to(mail_to&& other) noexcept;
    mail_to& operator=(mail_to&&) = delete;
    ~mail_to();

    [[nodiscard]] bool reachable() const noexcept { return socket_ >= 0; }
    /// 1 to 128 bytes. Never waits. False if nobody is there any more, or his box is full.
    [[nodiscard]] bool post(std::string_view text) const noexcept;

private:
    int socket_ = -1;
};

}  // namespace rowlock::wakeup
