#include <rowlock/driver/sqlite.hpp>
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/testing.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace rowlock::testing {
namespace {

using namespace std::chrono_literals;

// Not zero, which code might take for "never".
constexpr std::chrono::nanoseconds first_moment = 1h;
// 2026-01-01 00:00:00 UTC.
constexpr std::chrono::microseconds sql_epoch = 1'767'225'600s;

std::string make_folder() {
    std::error_code failure;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(failure);
    if (failure) {
        throw error{errc::out_of_resources, "there is no temporary folder; set TMPDIR to one"};
    }
    std::string name = (parent / "rowlock-testing-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
        throw error{errc::out_of_resources,
                    "no folder could be made in " + parent.string() + "; set TMPDIR to another"};
    }
    return name;
}

void remove_folder(const std::string& name) noexcept {
    std::error_code ignored;
    std::filesystem::remove_all(name, ignored);
}

std::string url_of(const std::string& folder) {
    std::string url = "sqlite:";
    for (const char c : folder) {
        if (c == '%') {
            url += "%25";
        } else if (c == '?') {
            url += "%3F";
        } else {
            url += c;
        }
    }
    return url + "/rowlock.db?synchronous=normal";  // nothing here outlives a power cut anyway
}

sql::connection_source open_on(const std::shared_ptr<manual_clock>& clock,
                               const std::string& folder) {
    sqlite::options options;
    options.testing_clock = [clock] {
        const auto passed = clock->now() - first_moment;
        return (sql_epoch + std::chrono::floor<std::chrono::microseconds>(passed)).count();
    };
    return sqlite::open(url_of(folder), std::move(options));
}

}  // namespace

struct manual_clock::state {
    struct listener {
        std::recursive_mutex running;  // recursive: `wake` may destroy its own handle
        bool gone = false;
        std::function<void()> wake;
    };

    std::atomic<std::chrono::nanoseconds::rep> now{first_moment.count()};
    std::mutex guard;
    std::vector<std::shared_ptr<listener>> listeners;

    void forget(const std::shared_ptr<listener>& one) {
        {
            const std::lock_guard lock{guard};
            std::erase(listeners, one);
        }
        const std::lock_guard lock{one->running};
        one->gone = true;
    }
};

manual_clock::manual_clock() : state_{std::make_shared<state>()} {}
manual_clock::~manual_clock() = default;

std::chrono::nanoseconds manual_clock::now() const noexcept {
    return std::chrono::nanoseconds{state_->now.load()};
}

std::shared_ptr<void> manual_clock::on_advance(std::function<void()> wake) {
    auto added = std::make_shared<state::listener>();
    added->wake = std::move(wake);
    // The handle first: it forgets the listener even if the next line throws.
    std::shared_ptr<void> handle{added.get(),
                                 [shared = state_, added](void*) { shared->forget(added); }};
    const std::lock_guard lock{state_->guard};
    state_->listeners.push_back(std::move(added));
    return handle;
}

void manual_clock::advance(std::chrono::nanoseconds by) {
    if (by < 0ns) throw error{errc::invalid_options, "a clock is moved forward only"};
    state_->now += by.count();
    std::vector<std::shared_ptr<state::listener>> now_listening;
    {
        const std::lock_guard lock{state_->guard};
        now_listening = state_->listeners;
    }
    for (const auto& one : now_listening) {
        const std::lock_guard lock{one->running};
        if (!one->gone && one->wake) one->wake();
    }
}

database::database()
    : clock_{std::make_shared<manual_clock>()},
      folder_{make_folder()},
      process_{::getpid()},
      source_{open_on(clock_, folder_)} {
    try {
        migrate(source_);
    } catch (...) {
        remove_folder(folder_);
        throw;
    }
}

database::~database() {
    if (::getpid() == process_) remove_folder(folder_);
}

client_options database::options(client_options options) const {
    options.time = clock_;
    return options;
}

}  // namespace rowlock::testing
