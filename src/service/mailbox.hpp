#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::service {

/// Where a client is told by others on its machine what concerns it alone, past the database, which
/// would wake many for it (PostgreSQL signals every listener), has no word for it (SQLite), or
/// takes a round trip and a connection (MySQL).
///
/// A datagram socket in the abstract namespace of Linux: it is no file, so nothing is left behind
/// by a crash, and it needs no folder that may be written. It is reached from the same network
/// namespace only; whoever is elsewhere is told by the database. What comes is a hint: it may be
/// lost, late, doubled or forged. Everybody there may send; whoever is to be believed says
/// something that only the database's users know.
class mailbox {
public:
    /// Opens one descriptor.
    /// @param number a session's: random, so nobody else's
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

/// The way to somebody's mailbox, if it can be reached from here.
class mail_to {
public:
    explicit mail_to(std::int64_t number) noexcept;
    mail_to(mail_to&& other) noexcept;
    mail_to& operator=(mail_to&&) = delete;
    ~mail_to();

    [[nodiscard]] bool reachable() const noexcept { return socket_ >= 0; }
    /// 1 to 128 bytes. Never waits. False if nobody is there any more, or his box is full.
    [[nodiscard]] bool post(std::string_view text) const noexcept;

private:
    int socket_ = -1;
};

}  // namespace rowlock::service
