#pragma once

#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tool {

/// A transaction that keeps the row of the lease `a` locked, as an open fence does, until it is
/// destroyed; on SQLite it keeps the file.
class open_transaction {
public:
    explicit open_transaction(const tables& in)
        : db_{rowlock::open(in.url()).connect(support::soon())} {
        const bool sqlite = in.url().starts_with("sqlite:");
        const bool postgresql = in.url().starts_with("postgresql:");
        db_->query(sqlite ? "begin immediate" : "begin", support::soon());
        if (!sqlite) {
            db_->query("select 1 from " + in.prefix() + "lock where name = 'a'" +
                           (postgresql ? " for share" : " lock in share mode"),
                       support::soon());
        }
        pid_ = sqlite
                   ? getpid()
                   : db_->query(postgresql ? "select pg_backend_pid()" : "select connection_id()",
                                support::soon())
                         .integer(0, 0);
        const auto id = std::to_string(pid_);
        who_ = "process " + id;
        ends_it_ = postgresql ? "`select pg_terminate_backend(" + id + ")`" : "kill " + id;
    }
    /// As the tool names it.
    [[nodiscard]] std::int64_t pid() const noexcept { return pid_; }
    [[nodiscard]] bool is_named_in(const std::string& text) const {
        return text.find(who_) != std::string::npos && text.find(ends_it_) != std::string::npos;
    }
    void end() { db_->query("rollback", support::soon()); }

private:
    std::unique_ptr<rowlock::sql::connection> db_;
    std::int64_t pid_ = 0;
    std::string who_, ends_it_;
};

}  // namespace tool
