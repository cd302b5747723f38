#pragma once

#include "tool/tool.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <string>

namespace tool {

/// Chromium without a window, driven by WebDriver (https://www.w3.org/TR/webdriver2/). A command
/// that fails fails the test case.
class browser {
public:
    /// One for all cases of the program, with an empty page and no settings of an earlier case.
    /// Null if Chromium or its driver is missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::shared_ptr<browser> start();
    browser(const browser&) = delete;
    browser& operator=(const browser&) = delete;
    ~browser();

    void open(const std::string& url) const;
    void resize(int width, int height) const;
    /// As a reader who prefers that.
    void prefer(const std::string& colour_scheme) const;
    /// Runs the body of a function in the page, and returns what that returns.
    nlohmann::json run(const std::string& script) const;
    /// Whether that becomes true.
    [[nodiscard]] bool becomes(const std::string& expression) const;
    /// As a person: the element must be there, and reachable.
    void click(const std::string& selector) const;
    void type(const std::string& selector, const std::string& text) const;
    /// The text of the page as a person reads it.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] bool shows(const std::string& text) const;
    [[nodiscard]] bool hides(const std::string& text) const;
    /// Errors in its console, such as a script that the page's policy forbids; each once.
    [[nodiscard]] nlohmann::json complaints() const;
    /// A PNG of what is seen.
    void save_picture(const std::string& file) const;

private:
    browser() = default;

    /// False if it does not answer.
    [[nodiscard]] bool renew() const;
    nlohmann::json command(const std::string& what, const nlohmann::json& with) const;
    [[nodiscard]] std::string element(const std::string& selector) const;

    scratch folder_;
    std::unique_ptr<process> driver_;
    std::unique_ptr<httplib::Client> http_;
    std::string session_;
};

}  // namespace tool
