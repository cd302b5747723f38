#pragma once

#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

namespace tool {

/// `rowlock serve` on a free port.
class serving {
public:
    /// @param more options
    explicit serving(const tables& in, const arguments& more = {}, setting with = {})
        : process_{command_line(in(command(more))), in.in_environment(std::move(with))} {
        REQUIRE(eventually([&] {
            return process_.out().find("/ shows ") != std::string::npos || process_.is_over();
        }));
        CAPTURE(process_.err());
        const std::string said = process_.out();
        REQUIRE(said.starts_with("http://"));
        port_ = std::stoi(said.substr(said.rfind(':', said.find("/ shows ")) + 1));
    }

    [[nodiscard]] int port() const noexcept { return port_; }
    [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
    [[nodiscard]] httplib::Client http() const {
        httplib::Client client{"127.0.0.1", port_};
        client.set_read_timeout(patience);
        return client;
    }
    /// Asks again if the server has given up on a database that did not answer it in time, or on
    /// this client.
    [[nodiscard]] httplib::Response answer(const std::string& path,
                                           const httplib::Headers& with = {}) const {
        auto client = http();
        httplib::Response said;
        REQUIRE(eventually([&] {
            auto got = client.Get(path, with);
            if (!got) return false;
            said = std::move(got.value());
            return said.body.find("the database has not answered yet") == std::string::npos &&
                   said.body.find("the database answers slowly") == std::string::npos;
        }));
        return said;
    }
    [[nodiscard]] nlohmann::json get(const std::string& path,
                                     const httplib::Headers& with = {}) const {
        return nlohmann::json::parse(answer(path, with).body);
    }
    /// The locks in use, once they could be read.
    [[nodiscard]] nlohmann::json locks() const {
        nlohmann::json said;
        REQUIRE(eventually([&] {
            said = get("/api/locks");
            return said.at("problem") == nullptr;
        }));
        return said;
    }
    [[nodiscard]] process& running() noexcept { return process_; }

private:
    static arguments command(const arguments& more) {
        arguments all{"serve"};
        all.insert(all.end(), more.begin(), more.end());
        if (std::ranges::find(more, "--every") == more.end()) {
            all.insert(all.end(), {"--every", "100ms"});
        }
        if (std::ranges::find(more, "--listen") == more.end()) {
            all.insert(all.end(), {"--listen", "127.0.0.1:0"});
        }
        return all;
    }

    process process_;
    int port_ = 0;
};

/// A file with a token, which its owner alone may read.
class token_file {
public:
    token_file() {
        std::ofstream{path()} << token_ << "\n";
        REQUIRE(chmod(path().c_str(), 0600) == 0);
    }
    [[nodiscard]] std::string path() const { return folder_ / "token"; }
    [[nodiscard]] const std::string& token() const noexcept { return token_; }
    [[nodiscard]] httplib::Headers header() const {
        return {{"Authorization", "Bearer " + token_}};
    }

private:
    scratch folder_;
    std::string token_ = "f2c9a0d1e4b7365882aa";
};

/// On a connection of its own.
inline void execute(const tables& in, const std::string& sql) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    rowlock::open(in.url()).connect(deadline)->query(sql, deadline);
}

/// In a SQLite file: more leases of the session that holds "first".
inline void add_leases_of_first(const tables& in, int count = 9'999) {
    execute(
        in,
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < " +
            std::to_string(count) +
            ") "
            "insert into rowlock_lock (name, token, session, grant_id, acquired_at, changed_at) "
            "select 'job/' || i, 1, session, i, acquired_at, changed_at from n, rowlock_lock "
            "where name = 'first'");
}

}  // namespace tool
