// `rowlock top`: what is held and waited for, live.

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/lock_view.hpp"
#include "cli/pages.hpp"
#include "cli/signals.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// One lock, of any kind.
struct shown_lock {
    std::string name;
    const char* kind = "lease";
    std::string holder{};
    milliseconds held{-1};  ///< negative: not known, or not held
    std::int64_t waiters = 0;
    milliseconds longest{-1};
    bool live = true;  ///< a holder lives
};

shown_lock shown(const lease_info& row) {
    shown_lock one{.name = row.name, .waiters = row.waiting};
    if (row.waiting > 0) one.longest = row.longest_wait;
    if (!row.holder) return one;
    const auto& who = *row.holder;
    const bool expired = who.remaining <= milliseconds{0};
    one.holder =
        fmt::format("{}[{}]@{}{}", who.program, who.pid, who.host, expired ? " (expired)" : "");
    one.held = who.held_for;
    one.live = !expired;
    return one;
}

std::string with_expired(std::string holders, std::int64_t expired) {
    if (expired == 0) return holders;
    return fmt::format("{}{}{} expired", holders, holders.empty() ? "" : ", ", expired);
}

shown_lock shown(const live_semaphore& one) {
    const auto& row = one.row;
    const auto live = row.used == 0 ? "" : fmt::format("{} of {} permits", row.used, row.capacity);
    return {.name = row.name,
            .kind = "semaphore",
            .holder = with_expired(live, one.expired),
            .waiters = row.waiting,
            .live = row.used > 0};
}

shown_lock shown(const live_shared_mutex& one) {
    const auto& row = one.row;
    std::string who;
    if (row.exclusive) who = "a writer";
    if (row.upgradeable) who = "an upgradeable reader";
    if (row.shared > 0) who += fmt::format("{}{} reading", who.empty() ? "" : ", ", row.shared);
    return {.name = row.name,
            .kind = "shared",
            .holder = with_expired(who, one.expired),
            .waiters = row.waiting,
            .live = !who.empty()};
}

bool is_in_use(const shown_lock& one) {
    return one.waiters > 0 || !one.holder.empty();
}

enum class order : unsigned char { wait, held, waiters, name };
constexpr std::array<const char*, 4> names_of_orders{"longest wait", "time held", "waiters",
                                                     "name"};

std::string as_time(milliseconds time) {
    return time < milliseconds{0} ? "-" : to_text(time);
}

class live_view {
public:
    live_view(const top_options& options, database in)
        : options_{options},
          in_{std::move(in)},
          prefix_{options.prefix},
          screen_{"rowlock top needs a terminal: `rowlock ls --watch` writes anywhere"} {}

    int run() {
        blocked_signals signals{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};
        for (;;) {
            if (steady_clock::now() >= due_) look();
            draw();
            const auto left = std::chrono::ceil<milliseconds>(due_ - steady_clock::now());
            switch (const int number = signals.wait(left, STDIN_FILENO)) {
                case 0:
                case SIGWINCH:
                    break;
                case SIGTSTP:
                    screen_.leave();
                    raise(SIGSTOP);
                    [[fallthrough]];
                case SIGCONT:
                    screen_.enter();
                    break;
                default:
                    screen_.leave();
                    throw failure{signal_base + number, ""};
            }
            while (const auto pressed = screen_.read_key()) {
                if (!react(*pressed)) return success;
            }
        }
    }

private:
    /// Reads all locks anew. What is wrong is shown, and the last answer stays.
    void look() {
        due_ = steady_clock::now() + options_.every;
        try {
            auto found = with_tables(in_, [&] { return read(); });
            locks_ = std::move(found);
            problem_.clear();
            seen_at_ = std::time(nullptr);
            sort();
        } catch (const error& failed) {
            problem_ = message_of(failed);
        } catch (const failure& failed) {
            problem_ = failed.what();
        }
    }

    std::vector<shown_lock> read() {
        constexpr int all = std::numeric_limits<int>::max();
        std::vector<shown_lock> found;
        const auto add = [&](shown_lock one) {
            if (is_in_use(one)) found.push_back(std::move(one));
        };
        const auto leases = [&](const page& next) { return client_.list(prefix_, next); };
        for (const auto& row : read_pages({}, all, leases).first) add(shown(row));
        // A user of leases alone may not read these.
        const auto if_permitted = [&](auto read_page) {
            try {
                const auto rows = read_pages({}, all, read_page).first;
                const expired_holds dead{in_, rows};
                for (const auto& row : rows) add(shown(dead.without(row)));
            } catch (const error& denied) {
                if (denied.kind() != errc::access_denied) throw;
            }
        };
        if_permitted([&](const page& next) { return list_semaphores(client_, prefix_, next); });
        if_permitted([&](const page& next) { return list_shared_mutexes(client_, prefix_, next); });
        return found;
    }

    void sort() {
        std::ranges::sort(locks_, {}, &shown_lock::name);
        if (by_ == order::name) return;
        std::ranges::stable_sort(locks_, std::greater{}, [&](const shown_lock& one) {
            const auto held = one.held.count();
            if (by_ == order::held) return std::pair{held, std::int64_t{0}};
            if (by_ == order::waiters) return std::pair{one.waiters, held};
            // A queue whose wait is not known comes behind those whose is, before locks without
            // one.
            const auto wait =
                one.waiters == 0 ? -1 : std::max<std::int64_t>(one.longest.count(), 0);
            return std::pair{wait, held};
        });
    }

    // --- drawing

    [[nodiscard]] std::size_t selected() const {
        const auto found = std::ranges::find(locks_, chosen_, &shown_lock::name);
        return found == locks_.end() ? 0 : static_cast<std::size_t>(found - locks_.begin());
    }
    [[nodiscard]] static std::size_t room() {
        constexpr std::size_t others = 5;  // two lines above, a blank, the headings, the keys
        const auto lines = terminal::size().lines;
        return lines > others + 1 ? lines - others : 1;
    }

    /// When the locks were read that are shown.
    [[nodiscard]] std::string seen_text() const {
        if (seen_at_ == 0) return "not read yet";
        return fmt::format("{}{:%H:%M:%S}", problem_.empty() ? "" : "as of ",
                           fmt::localtime(seen_at_));
    }

    void draw() const {
        const auto size = terminal::size();
        std::int64_t held = 0;
        std::int64_t expired = 0;
        std::int64_t waiters = 0;
        for (const auto& each : locks_) {
            if (!each.holder.empty()) ++(each.live ? held : expired);
            waiters += each.waiters;
        }
        std::vector<std::string> lines;
        lines.push_back(fmt::format("{}  {}", seen_text(), escaped(description_of(in_))));
        lines.push_back(
            !problem_.empty()
                ? "cannot read: " + escaped(problem_)
                : fmt::format("{} held, {}{} waiting, every {}, by {}{}", held,
                              expired == 0 ? "" : fmt::format("{} expired, ", expired), waiters,
                              to_text(options_.every),
                              names_of_orders.at(static_cast<std::size_t>(by_)),
                              prefix_.empty() ? "" : ", names with " + escaped(prefix_)));
        lines.emplace_back();
        add_table(lines, size.columns);
        const std::string keys =
            typing_ ? "filter: " + escaped(typed_) + "_"
                    : "up/down choose  enter show  b break  / filter  o order  q quit";
        while (lines.size() + 1 < size.lines) lines.emplace_back();
        lines.push_back(keys);
        std::string text;
        for (std::size_t i = 0; i < lines.size() && i < size.lines; ++i) {
            const bool marked = i == marked_line_;
            text += (i == 0 ? "" : "\n") + std::string{marked ? "\x1b[7m" : ""} +
                    cut(lines[i], size.columns);
        }
        terminal::draw(text);
    }

    void add_table(std::vector<std::string>& lines, std::size_t columns) const {
        marked_line_ = std::string::npos;
        if (locks_.empty()) {
            lines.emplace_back(problem_.empty() ? "no lock is held or waited for" : "");
            return;
        }
        const std::size_t at = selected();
        const std::size_t first = at < room() ? 0 : at - room() + 1;
        std::vector<std::vector<std::string>> cells;
        for (std::size_t i = first; i < std::min(first + room(), locks_.size()); ++i) {
            const auto& one = locks_[i];
            cells.push_back(
                {one.name, one.kind, one.holder.empty() ? "-" : one.holder, as_time(one.held),
                 one.waiters == 0 ? "-" : std::to_string(one.waiters), as_time(one.longest)});
        }
        const std::string text =
            table({"NAME", "KIND", "HOLDER", "HELD", "WAITERS", "LONGEST"}, cells, columns);
        marked_line_ = lines.size() + 1 + (at - first);
        for (std::size_t begin = 0; begin < text.size();) {
            const auto end = text.find('\n', begin);
            lines.push_back(text.substr(begin, end - begin));
            begin = end + 1;
        }
    }

    // --- keys

    /// Returns false to end.
    bool react(const terminal::pressed& pressed) {
        if (typing_) return type(pressed);
        using key = terminal::key;
        switch (pressed.what) {
            case key::up:
                move(-1);
                break;
            case key::down:
                move(1);
                break;
            case key::page_up:
                move(-static_cast<std::ptrdiff_t>(room()));
                break;
            case key::page_down:
                move(static_cast<std::ptrdiff_t>(room()));
                break;
            case key::enter:
                show_chosen();
                break;
            case key::escape:
            case key::backspace:
                break;
            case key::character:
                return react_to(pressed.text);
        }
        return true;
    }

    bool react_to(char letter) {
        switch (letter) {
            case 'q':
                return false;
            case 'k':
                move(-1);
                break;
            case 'j':
                move(1);
                break;
            case 's':
                show_chosen();
                break;
            case 'b':
                break_chosen();
                break;
            case 'o':
                by_ = static_cast<order>((static_cast<std::size_t>(by_) + 1) %
                                         names_of_orders.size());
                sort();
                break;
            case '/':
                typing_ = true;
                typed_ = prefix_;
                break;
            case ' ':
                due_ = {};
                break;
            default:
                break;
        }
        return true;
    }

    /// A new filter.
    bool type(const terminal::pressed& pressed) {
        using key = terminal::key;
        if (pressed.what == key::character) typed_ += pressed.text;
        if (pressed.what == key::backspace && !typed_.empty()) typed_.pop_back();
        if (pressed.what == key::enter) {
            prefix_ = typed_;
            due_ = {};
        }
        if (pressed.what == key::enter || pressed.what == key::escape) typing_ = false;
        return true;
    }

    void move(std::ptrdiff_t by) {
        if (locks_.empty()) return;
        const auto last = static_cast<std::ptrdiff_t>(locks_.size()) - 1;
        const auto next =
            std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(selected()) + by, 0, last);
        chosen_ = locks_[static_cast<std::size_t>(next)].name;
    }

    void show_chosen() {
        if (locks_.empty()) return;
        const auto name = locks_[selected()].name;
        aside([&] { return show({.database = options_.database, .name = name}); });
    }

    /// As `rowlock break`, which says what it does, and asks.
    void break_chosen() {
        if (locks_.empty()) return;
        break_options what;
        what.database = options_.database;
        what.name = locks_[selected()].name;
        aside([&] { return break_lock(what); });
        due_ = {};
    }

    /// Runs another command on the screen of the user.
    template <typename Command>
    void aside(Command command) {
        screen_.leave();
        try {
            command();
        } catch (const error& failed) {
            complain(message_of(failed));
        } catch (const failure& failed) {
            complain(failed.what());
        }
        print("\nany key goes back\n");
        screen_.wait_for_key();
        screen_.enter();
    }

    const top_options& options_;
    const database in_;
    client client_{in_.source, tool_options()};
    std::string prefix_;
    order by_ = order::wait;
    std::vector<shown_lock> locks_{};
    std::string chosen_{};
    std::string problem_{};
    std::time_t seen_at_ = 0;
    steady_clock::time_point due_{};
    bool typing_ = false;
    std::string typed_{};
    mutable std::size_t marked_line_ = std::string::npos;
    terminal screen_;
};

}  // namespace

int top(const top_options& options) {
    return live_view{options, find_database(options.database)}.run();
}

}  // namespace rowlock::cli
