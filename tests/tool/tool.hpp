#pragma once

#include "support/servers.hpp"
#include <rowlock/sql/connection.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Black-box tests of the tool: its processes, its databases.
namespace tool {

constexpr std::chrono::seconds patience{90};

using arguments = std::vector<std::string>;
using environment = std::map<std::string, std::string>;

/// A folder that every user may enter, removed with its contents.
class scratch {
public:
    scratch();
    explicit scratch(const std::string& parent);
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch();
    [[nodiscard]] std::string operator/(const std::string& name) const {
        return path_ + "/" + name;
    }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    std::string path_;
};

/// A process's environment. HOME is a scratch folder and ROWLOCK_… is unset unless named here.
struct setting {
    environment variables = {};
    std::string folder = {};        ///< to work in
    std::string standard_output{};  ///< a file, instead of one that out() reads
    std::string standard_input = "/dev/null";
    bool unprivileged = false;  ///< as the user `nobody`, if this process is root's
    std::function<void()> before_exec = {};
};

/// A process. The destructor kills it and waits for it if it still runs.
class process {
public:
    process(const arguments& command, setting with = {});
    process(const process&) = delete;
    process& operator=(const process&) = delete;
    ~process();

    [[nodiscard]] pid_t id() const noexcept { return id_; }
    void send(int signal) const;
    /// The exit code, or 1000 + n if signal n ended it. Fails the test case after `limit`.
    int wait(std::chrono::seconds limit = patience);
    [[nodiscard]] bool is_over();
    [[nodiscard]] std::string out() const;
    [[nodiscard]] std::string err() const;

private:
    scratch files_;
    setting with_;
    pid_t id_ = -1;
    std::optional<int> code_;
};

struct answer {
    int code = -1;
    std::string out, err;
};

/// Runs `rowlock ARGUMENTS…` to its end.
answer rowlock(const arguments& command, const setting& with = {});
/// The command line of the tool, to start a process.
[[nodiscard]] arguments command_line(const arguments& command);

/// Checks every few milliseconds until the condition holds. False after `limit`.
[[nodiscard]] bool eventually(const std::function<bool()>& condition,
                              std::chrono::seconds limit = patience);

/// Ids of the living children of a process.
[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);
/// Waits until this `rowlock run` has started its command. False after `patience`.
[[nodiscard]] bool runs_its_command(const process& run);
/// Whether the process exists and is not a zombie.
[[nodiscard]] bool is_alive(pid_t process);
[[nodiscard]] std::string contents(const std::string& path);
[[nodiscard]] std::vector<pid_t> pids_in(const std::string& path);

/// The test's own migrated tables in one of the databases, and how to name them to the tool.
class tables {
public:
    virtual ~tables() = default;
    [[nodiscard]] virtual const char* name() const = 0;
    [[nodiscard]] const std::string& url() const noexcept { return url_; }
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
    /// `command`, with --prefix after its first word.
    [[nodiscard]] arguments operator()(arguments command) const;
    /// ROWLOCK_URL.
    [[nodiscard]] setting in_environment(setting with = {}) const;
    answer run(const arguments& command, setting with = {}) const;

    /// The same tables in this process, where a look costs less than a start of the tool.
    [[nodiscard]] rowlock::sql::connection_source source() const;
    /// `select count(*) from rows`; `rowlock_` is replaced by the prefix of this test's tables.
    [[nodiscard]] std::int64_t count(const std::string& rows) const;
    /// Waits until it is that; until so many wait. False after `patience`.
    [[nodiscard]] bool becomes(std::int64_t count, const std::string& rows) const;
    /// Moves what ends by the database's clock so much closer, as if that time had passed: the
    /// sessions, and the deadlines of leases, permits and modes. Clients believe by their own
    /// clocks.
    void let_pass(std::chrono::seconds time) const;
    [[nodiscard]] bool queue_becomes(std::int64_t count, const std::string& name) const;

protected:
    std::string url_, prefix_;

private:
    mutable std::unique_ptr<rowlock::sql::connection> counting_;
};

enum class tables_wanted : bool { none, made };

/// In a SQLite file, on PostgreSQL, on MariaDB; null if the server is missing (see
/// support::url_of).
std::unique_ptr<tables> sqlite_tables(tables_wanted made = tables_wanted::made);
std::unique_ptr<tables> server_tables(support::server which,
                                      tables_wanted made = tables_wanted::made);
/// The tables in all available databases.
std::vector<std::unique_ptr<tables>> all_tables(tables_wanted made = tables_wanted::made);
/// The same for a case that takes seconds and is about the tool alone: on PostgreSQL, with
/// ROWLOCK_TEST_DRIVER=every on all of them; in a run for MySQL on that.
std::vector<std::unique_ptr<tables>> for_the_tool();

}  // namespace tool
