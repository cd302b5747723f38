// Periodic runs (T14): run_once() beside the statements that ShedLock's JDBC provider sends for a
// scheduled task, on the same PostgreSQL.
#include "common/program.hpp"
#include "common/tables.hpp"
#include "peers/shedlock.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/periodic_run.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

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

void measure(const program_options& common, findings& found) {
    const std::string url = need(postgresql_url(), "PostgreSQL");
    const tables where{url};
    const auto table = shedlock_on_postgresql(url);
    const auto locks = std::make_shared<rowlock::client>(where.source());
    std::vector<contestant> all;
    all.push_back(line_up("ShedLock's statements", 1, [&](int) { return table->task("job"); }));
    all.push_back(line_up("run_once", 1, [&](int) { return std::make_unique<our_task>(locks); }));
    const auto seen = measured(found, "T14", all, rounds_of(common, {}));
    found.add(compared("T14", seen[1], seen[0], "runs/s", 0.3));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "Measures runs once a period, beside ShedLock's statements.", bench::measure);
}
