#include "cli/terminal.hpp"

#include "cli/exit_code.hpp"
#include "cli/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rowlock::cli {
namespace {

constexpr std::string_view enter_screen{"\x1b[?1049h\x1b[?25l"};
constexpr std::string_view leave_screen{"\x1b[?25h\x1b[?1049l"};

/// What terminals send for keys that are no characters.
constexpr std::array<std::pair<std::string_view, terminal::key>, 6> sequences{{
    {"\x1b[A", terminal::key::up},
    {"\x1b[B", terminal::key::down},
    {"\x1bOA", terminal::key::up},
    {"\x1bOB", terminal::key::down},
    {"\x1b[5~", terminal::key::page_up},
    {"\x1b[6~", terminal::key::page_down},
}};

void write_quietly(std::string_view text) noexcept {
    static_cast<void>(!::write(STDOUT_FILENO, text.data(), text.size()));
}

}  // namespace

terminal::terminal(const std::string& otherwise) {
    if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 ||
        tcgetattr(STDIN_FILENO, &before_) != 0) {
        throw failure{usage, otherwise};
    }
    enter();
}

terminal::~terminal() {
    leave();
}

terminal::extent terminal::size() noexcept {
    winsize seen{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &seen) != 0 || seen.ws_row == 0 || seen.ws_col == 0) {
        return {};
    }
    return {seen.ws_row, seen.ws_col};
}

void terminal::draw(std::string_view text) {
    std::string all{"\x1b[H"};
    for (std::size_t begin = 0; begin < text.size();) {
        const auto end = std::min(text.find('\n', begin), text.size());
        if (begin > 0) all += "\r\n";
        all.append(text.substr(begin, end - begin)).append("\x1b[0m\x1b[K");
        begin = end + 1;
    }
    print(all + "\x1b[J");
}

void terminal::leave() noexcept {
    if (!std::exchange(inside_, false)) return;
    write_quietly(leave_screen);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

void terminal::enter() {
    if (std::exchange(inside_, true)) return;
    // What was typed before the page was there is not meant for it.
    read_keys(0, TCSAFLUSH);
    write_quietly(enter_screen);
}

void terminal::read_keys(cc_t at_least, int typed_before) const noexcept {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = at_least;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, typed_before, &raw);
}

std::optional<terminal::pressed> terminal::read_key() {
    std::array<char, 64> some{};
    const ssize_t got = read(STDIN_FILENO, some.data(), some.size());
    if (got > 0) typed_.append(some.data(), static_cast<std::size_t>(got));
    if (typed_.empty()) return std::nullopt;
    for (const auto& [sequence, which] : sequences) {
        if (!typed_.starts_with(sequence)) continue;
        typed_.erase(0, sequence.size());
        return pressed{which};
    }
    const char first = typed_.front();
    if (first == '\x1b') {
        typed_.clear();  // escape itself, or a key that means nothing here
        return pressed{key::escape};
    }
    typed_.erase(0, 1);
    if (first == '\n' || first == '\r') return pressed{key::enter};
    if (first == '\x7f' || first == '\b') return pressed{key::backspace};
    return pressed{key::character, first};
}

void terminal::wait_for_key() {
    // A key that was typed as soon as there was something to read counts.
    read_keys(1, TCSADRAIN);
    char one = 0;
    static_cast<void>(!read(STDIN_FILENO, &one, 1));
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

}  // namespace rowlock::cli
