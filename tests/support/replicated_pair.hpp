#pragma once

#include "support/servers.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace support {

/// A primary and its standby on this machine, for a test that makes the one die and the other take
/// its place. Takes a few seconds to make.
class replicated_pair {
public:
    enum class commits : unsigned char { asynchronous, synchronous };

    /// Synchronous: a commit is answered when the standby has it, too (PostgreSQL: has applied it;
    /// MariaDB, MySQL: has it on disk, semi-synchronous). Null if the server's programs are
    /// missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<replicated_pair> start(server which, commits how);
    virtual ~replicated_pair() = default;
    replicated_pair(const replicated_pair&) = delete;
    replicated_pair& operator=(const replicated_pair&) = delete;

    [[nodiscard]] virtual const std::string& primary_url() const = 0;
    [[nodiscard]] virtual const std::string& standby_url() const = 0;
    /// Both hosts, the primary first.
    [[nodiscard]] virtual std::string url() const = 0;

    /// Until the standby has all that the primary has.
    void catch_up() const;
    /// From now on the standby receives nothing more: it lags.
    virtual void hold_back() = 0;
    /// kill -9.
    virtual void kill_primary() = 0;
    /// Makes the standby a primary of its own and waits until it is.
    virtual void promote() = 0;

protected:
    replicated_pair() = default;
};

}  // namespace support
