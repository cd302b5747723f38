#pragma once

#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::cli {

/// The terminal of standard input and output while a program draws on all of it: keys are read one
/// by one and not echoed, and what was on the screen before comes back at the end.
class terminal {
public:
    /// @throws failure exit code 64 saying `otherwise` if there is none
    explicit terminal(const std::string& otherwise);
    terminal(const terminal&) = delete;
    terminal& operator=(const terminal&) = delete;
    ~terminal();

    struct extent {
        std::size_t lines = 24, columns = 80;
    };
    [[nodiscard]] static extent size() noexcept;
    /// Replaces what is on the screen. @param text lines that fit on it
    static void draw(std::string_view text);

    /// As the user left it, for output of another kind; and back.
    void leave() noexcept;
    void enter();

    enum class key : unsigned char {
        character,
        enter,
        escape,
        backspace,
        up,
        down,
        page_up,
        page_down
    };
    struct pressed {
        key what;
        char text = 0;  ///< of a character
    };
    /// What was typed since, one key at a time. Does not wait.
    [[nodiscard]] std::optional<pressed> read_key();
    /// Waits for a key, after leave().
    void wait_for_key();

private:
    /// @param at_least so many characters a read waits for
    void read_keys(cc_t at_least, int typed_before) const noexcept;

    termios before_{};
    bool inside_ = false;
    std::string typed_{};
};

}  // namespace rowlock::cli
