// The client's own work in an acquire and a release of a free lock, for callgrind to count
// (./compare). The database is simulated: after a few real statements on a SQLite file, each
// statement of this thread gets, uncounted, the database's earlier answer to the same text. Other
// threads use the real database, and are not counted.
//
//     client_path PAIRS [TURNS]    the number of pairs, and of turns of an empty loop in each
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/rowlock.hpp>

#include <stdlib.h>
#include <valgrind/callgrind.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

using namespace rowlock;
using namespace std::chrono_literals;

/// Whether this thread's statements are answered from memory, and its instructions counted.
thread_local bool playing = false;
thread_local bool remembering = false;

/// Suspends the counting for work that is not the client's.
class uncounted {
public:
    uncounted() {
        if (playing) CALLGRIND_TOGGLE_COLLECT;
    }
    uncounted(const uncounted&) = delete;
    uncounted& operator=(const uncounted&) = delete;
    ~uncounted() {
        if (playing) CALLGRIND_TOGGLE_COLLECT;
    }
};

class played_connection final : public sql::connection {
public:
    explicit played_connection(std::unique_ptr<sql::connection> inner) : inner_{std::move(inner)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return answer(what.text(), [&] { return inner_->execute(what, parameters, until); });
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return answer(text, [&] { return inner_->query(text, until); });
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return playing ? played_ : inner_->transaction();
    }
    [[nodiscard]] sql::notifications* notifications() noexcept override {
        return inner_->notifications();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    template <typename Ask>
    sql::result answer(std::string_view text, Ask ask) {
        const uncounted here;
        if (!playing) {
            auto said = ask();
            if (remembering) said_.insert_or_assign(std::string{text}, said);
            return said;
        }
        if (text.starts_with("begin")) played_ = sql::transaction_state::open;
        if (text == "commit" || text == "rollback") played_ = sql::transaction_state::none;
        const auto found = said_.find(text);
        if (found == said_.end()) {
            std::fprintf(stderr, "never sent before: %s\n", std::string{text}.c_str());
            std::exit(2);
        }
        return found->second;
    }

    std::unique_ptr<sql::connection> inner_;
    sql::transaction_state played_ = sql::transaction_state::none;
    inline static std::map<std::string, sql::result, std::less<>>
        said_;  ///< the main thread's answers
};

class scratch_folder {
public:
    scratch_folder() {
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    std::string path_ = std::filesystem::temp_directory_path() / "rowlock-instructions-XXXXXX";
};

void pair(client& locks, int turns) {
    auto lease = locks.acquire("job");
    lease.release();
    for (int i = 0; i < turns; ++i) asm volatile("" ::: "memory");
}

int number(const char* text) {
    int value = -1;
    std::from_chars(text, text + std::strlen(text), value);
    if (value < 0) throw std::runtime_error{"PAIRS and TURNS are numbers"};
    return value;
}

void run(int pairs, int turns) {
    constexpr int warm_up = 20;
    const scratch_folder folder;
    const auto file = sqlite::open("sqlite:" + folder.path() + "/locks.db?synchronous=normal");
    migrate(file);
    const sql::connection_source played{
        file.speaks(),
        [&](sql::deadline until) {
            return std::make_unique<played_connection>(file.connect(until));
        },
        "played"};
    client_options options;
    options.ttl = 600s;  // valgrind is slow
    client locks{played, options};
    remembering = true;
    for (int i = 0; i < warm_up; ++i) pair(locks, 0);
    remembering = false;
    playing = true;
    CALLGRIND_TOGGLE_COLLECT;
    for (int i = 0; i < pairs; ++i) pair(locks, turns);
    CALLGRIND_TOGGLE_COLLECT;
    playing = false;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc < 2) throw std::runtime_error{"client_path PAIRS [TURNS]"};
        run(number(argv[1]), argc > 2 ? number(argv[2]) : 0);
        return 0;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "client_path: %s\n", failure.what());
        return 1;
    }
}
