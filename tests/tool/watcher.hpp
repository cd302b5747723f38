#pragma once

#include "support/servers.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <sstream>
#include <string>

namespace tool {

/// A user of a server that has the rights of `migrate --print-grants ROLE --read-only`, and no
/// others.
class watcher {
public:
    watcher(const tables& in, support::server which)
        : in_{in},
          postgresql_{which == support::server::postgresql},
          user_{"watcher_" + in.prefix()} {
        const std::string account = postgresql_ ? user_ : "'" + user_ + "'@'%'";
        execute(postgresql_ ? "create role " + user_ + " login password 'visitor'"
                            : "create user " + account + " identified by 'visitor'");
        const auto printed = in.run({"migrate", "--print-grants", user_, "--read-only"});
        REQUIRE(printed.code == 0);
        CHECK(printed.out.find("wake_secret") == std::string::npos);
        std::istringstream lines{printed.out};
        for (std::string line; std::getline(lines, line);) execute(line);
        url_ = in.url();
        const auto begin = url_.find("//") + 2;
        url_.replace(begin, url_.find('@') - begin, user_ + ":visitor");
    }
    watcher(const watcher&) = delete;
    watcher& operator=(const watcher&) = delete;
    ~watcher() {
        if (postgresql_) execute("drop owned by " + user_);
        execute(postgresql_ ? "drop role " + user_ : "drop user '" + user_ + "'@'%'");
    }

    /// The database's, with its name and password.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }
    [[nodiscard]] answer run(const arguments& command) const {
        return rowlock(in_(command), {.variables = {{"ROWLOCK_URL", url_}}});
    }

private:
    void execute(const std::string& sql) const {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        rowlock::open(in_.url()).connect(deadline)->query(sql, deadline);
    }

    const tables& in_;
    const bool postgresql_;
    const std::string user_;
    std::string url_;
};

}  // namespace tool
