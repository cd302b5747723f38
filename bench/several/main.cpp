// Several locks at once (T12): four leases by one call, beside the same four acquired one by one;
// and so for modes of shared_mutexes.
#include "common/ours.hpp"
#include "shared/contestants.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/client.hpp>
#include <rowlock/shared_mutex.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int locks_of_each = 4;

std::vector<rowlock::lock_name> names_of(int thread) {
    std::vector<rowlock::lock_name> all;
    for (int i = 0; i < locks_of_each; ++i) all.emplace_back(fmt::format("{}/{}", thread, i));
    return all;
}

/// Takes four locks of its own in one call.
class at_once final : public worker {
public:
    at_once(std::shared_ptr<rowlock::client> locks, const std::vector<rowlock::lock_name>& names)
        : locks_{std::move(locks)}, wanted_{names.begin(), names.end()} {}
    void turn() override { const auto taken = locks_->acquire_all(wanted_); }

private:
    const std::shared_ptr<rowlock::client> locks_;
    const std::vector<rowlock::lock_request> wanted_;
};

/// Takes them one after the other, and gives them back so.
class one_by_one final : public worker {
public:
    one_by_one(std::shared_ptr<rowlock::client> locks, std::vector<rowlock::lock_name> names)
        : locks_{std::move(locks)}, names_{std::move(names)} {}
    void turn() override {
        std::vector<rowlock::lease> taken;
        taken.reserve(names_.size());
        for (const auto& each : names_) taken.push_back(locks_->acquire(each));
    }

private:
    const std::shared_ptr<rowlock::client> locks_;
    const std::vector<rowlock::lock_name> names_;
};

/// Takes four shared_mutexes of its own, one of them exclusively, in one call.
class modes_at_once final : public worker {
public:
    modes_at_once(std::shared_ptr<rowlock::client> locks,
                  const std::vector<rowlock::lock_name>& names)
        : locks_{std::move(locks)} {
        for (const auto& each : names) wanted_.push_back({each, mode_of(each, names)});
    }
    void turn() override { const auto taken = locks_->acquire_all(wanted_); }

    static rowlock::lock_mode mode_of(const rowlock::lock_name& one,
                                      const std::vector<rowlock::lock_name>& all) {
        return one == all.front() ? rowlock::lock_mode::exclusive : rowlock::lock_mode::shared;
    }

private:
    const std::shared_ptr<rowlock::client> locks_;
    std::vector<rowlock::lock_request> wanted_;
};

/// The same, one after the other.
class modes_one_by_one final : public worker {
public:
    modes_one_by_one(std::shared_ptr<rowlock::client> locks,
                     const std::vector<rowlock::lock_name>& names)
        : locks_{std::move(locks)} {
        for (const auto& each : names) {
            wanted_.push_back({std::make_unique<rowlock::shared_mutex>(*locks_, each),
                               modes_at_once::mode_of(each, names)});
        }
    }
    void turn() override {
        std::vector<rowlock::mode_lease> taken;
        taken.reserve(wanted_.size());
        for (const auto& [lock, mode] : wanted_) taken.push_back(lock->acquire(mode));
    }

private:
    const std::shared_ptr<rowlock::client> locks_;
    std::vector<std::pair<std::unique_ptr<rowlock::shared_mutex>, rowlock::lock_mode>> wanted_;
};

/// @param make the client of each thread
template <typename OneByOne, typename AtOnce, typename Make>
void compare(findings& found, const std::string& id, int threads, Make make,
             const round_options& rounds) {
    std::vector<contestant> all;
    all.push_back(line_up("one by one", threads,
                          [&](int i) { return std::make_unique<OneByOne>(make(), names_of(i)); }));
    all.push_back(line_up("at once", threads,
                          [&](int i) { return std::make_unique<AtOnce>(make(), names_of(i)); }));
    const auto seen = measured(found, id, all, rounds);
    found.add(compared(id, seen[1], seen[0], "turns/s", 1.0));
}

/// One thread; then threads with a client each, as in as many processes. (Threads of one client
/// that acquire free leases one by one share their commits, which those of acquire_all do not.)
void compare_all(findings& found, const std::string& database, const std::string& url,
                 const throughput_options& options, const round_options& rounds) {
    constexpr int many = 16;
    const tables where{url};
    const auto make = [&] { return client_for(where, options); };
    compare<one_by_one, at_once>(found, fmt::format("T12/{}-1", database), 1, make, rounds);
    compare<one_by_one, at_once>(found, fmt::format("T12/clients-{}-{}", database, many), many,
                                 make, rounds);
    const tables of_modes{url};
    const auto make_another = [&] { return client_for(of_modes, options); };
    compare<modes_one_by_one, modes_at_once>(found, fmt::format("T12/modes-{}-1", database), 1,
                                             make_another, rounds);
    compare<modes_one_by_one, modes_at_once>(
        found, fmt::format("T12/modes-clients-{}-{}", database, many), many, make_another, rounds);
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    const temporary_folder folder;
    for (const std::string& each : databases) {
        const std::string url = url_of(each, folder);
        compare_all(found, each, url, options, rounds);
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_on_databases(
        argc, argv, "Measures four leases, or modes, acquired by one call, and one by one.",
        bench::measure);
}
