"""Reading the text of a reply: tool calls, thinking, words, errors about context length."""
