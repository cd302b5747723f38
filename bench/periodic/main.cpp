// Periodic runs (T14): run_once() beside the statements that ShedLock's JDBC provider sends for a
// scheduled task, on the same PostgreSQL.
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/periodic_run.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

/// An update that takes the lock if its time is over, and one that ends it. Both wait for the disk.
/// It has no owner's heartbeat, no token and no record of periods: a task that takes longer than
/// its limit overlaps the next.
class shedlock_task final : public worker {
public:
    shedlock_task(const std::string& url, const std::string& table) : session_{url} {
        session_.query(
            fmt::format("insert into {} (name, lock_until, locked_at, locked_by) values "
                        "('job', now(), now(), 'bench')",
                        table));
        session_.prepare("lock", fmt::format("update {} set lock_until = now() + '10 minutes', "
                                             "locked_at = now(), locked_by = $2 "
                                             "where name = $1 and lock_until <= now()",
                                             table)
                                     .c_str());
        session_.prepare("unlock", fmt::format("update {} set lock_until = now() "
                                               "where name = $1 and locked_by = $2",
                                               table)
                                       .c_str());
    }
    void turn() override {
        if (rows_of(session_.run("lock", {"job", "bench"})) != 1) {
            throw std::runtime_error{"ShedLock's statements: not locked"};
        }
        session_.run("unlock", {"job", "bench"});
    }

private:
    postgresql_session session_;
};

/// A new period with each turn.
class our_task final : public worker {
public:
    explicit our_task(std::shared_ptr<rowlock::client> locks) : locks_{std::move(locks)} {}
    void turn() override {
        const auto outcome =
            rowlock::run_once(*locks_, "job", {.period = fmt::format("{:012}", ++period_)},
                              [](const rowlock::lease&) {});
        if (outcome != rowlock::periodic_outcome::begun) {
            throw std::runtime_error{"the period was not begun"};
        }
    }

private:
    const std::shared_ptr<rowlock::client> locks_;
    long period_ = 0;
};

/// The table that ShedLock's users make.
class shedlock_table {
public:
    explicit shedlock_table(const std::string& url)
        : session_{url}, name_{fmt::format("shedlock_{}", ::getpid())} {
        session_.query("create table " + name_ +
                       " (name varchar(64) primary key, lock_until timestamp not null, "
                       "locked_at timestamp not null, locked_by varchar(255) not null)");
    }
    ~shedlock_table() {
        try {
            session_.query("drop table " + name_);
        } catch (const std::exception& failure) {
            fmt::print(stderr, "cannot drop the table {}: {}\n", name_, failure.what());
        }
    }
    shedlock_table(const shedlock_table&) = delete;
    shedlock_table& operator=(const shedlock_table&) = delete;
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    postgresql_session session_;
    std::string name_;
};

void measure(const program_options& common, findings& found) {
    const std::string url = need(postgresql_url(), "PostgreSQL");
    const tables where{url};
    const shedlock_table table{url};
    const auto locks = std::make_shared<rowlock::client>(where.source());
    std::vector<contestant> all;
    all.push_back(line_up("ShedLock's statements", 1,
                          [&](int) { return std::make_unique<shedlock_task>(url, table.name()); }));
    all.push_back(line_up("run_once", 1, [&](int) { return std::make_unique<our_task>(locks); }));
    const auto seen = take_turns(all, rounds_of(common, {}));
    for (std::size_t i = 0; i < all.size(); ++i) tell(found, "T14", all[i], seen[i]);
    found.add({.id = "T14",
               .ours = seen[1].per_second,
               .theirs = seen[0].per_second,
               .unit = "runs/s",
               .target = 0.3});
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "Measures runs once a period, beside ShedLock's statements.", bench::measure);
}
