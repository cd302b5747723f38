// Quorum locks (T16): a free lock of three members beside the lease of one, all on one PostgreSQL,
// by one client with one thread.
#include "common/postgresql.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/client.hpp>
#include <rowlock/quorum.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

class lease_pairs final : public worker {
public:
    explicit lease_pairs(std::shared_ptr<rowlock::client> locks) : locks_{std::move(locks)} {}
    void turn() override { locks_->acquire("alone").release(); }

private:
    const std::shared_ptr<rowlock::client> locks_;
};

class quorum_pairs final : public worker {
public:
    explicit quorum_pairs(std::shared_ptr<rowlock::quorum_client> locks)
        : locks_{std::move(locks)} {}
    void turn() override { locks_->acquire("job").release(); }

private:
    const std::shared_ptr<rowlock::quorum_client> locks_;
};

/// The members share a server, which found_quorum() refuses: their rows are written by hand.
void join(const std::string& url, const tables& where, int members) {
    const std::string server =
        "(select system_identifier::text from pg_control_system()) || '/' || "
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
    std::string all = server;
    for (int i = 1; i < members; ++i) all += " || chr(10) || " + server;
    postgresql_session{url}.query(
        fmt::format("insert into {}member (id, quorum, epoch, members, ready_for, floor, "
                    "max_ttl_us, changed_at) values (1, 'bench', 1, {}, {}, 0, 30000000, now())",
                    where.source().tables().prefix, all, server));
}

void measure(const program_options& common, findings& found) {
    const std::string url = need(postgresql_url(), "PostgreSQL");
    constexpr int members = 3;
    std::vector<std::unique_ptr<tables>> all_tables;
    std::vector<rowlock::sql::connection_source> sources;
    for (int i = 0; i < members; ++i) {
        all_tables.push_back(std::make_unique<tables>(url));
        join(url, *all_tables.back(), members);
        sources.push_back(all_tables.back()->source());
    }
    const auto one = std::make_shared<rowlock::client>(sources.front());
    const auto several = std::make_shared<rowlock::quorum_client>(sources);
    std::vector<contestant> all;
    all.push_back(line_up("one lease", 1, [&](int) { return std::make_unique<lease_pairs>(one); }));
    all.push_back(line_up("a quorum of three", 1,
                          [&](int) { return std::make_unique<quorum_pairs>(several); }));
    const auto seen = measured(found, "T16", all, rounds_of(common, {}));
    found.add(compared("T16", seen[1], seen[0], "pairs/s", 0.1));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "Measures a quorum lock of three members, beside one lease.", bench::measure);
}
