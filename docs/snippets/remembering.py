import palestra


class CountsUp:
    """Says 1, then 2, then 3: the earlier replies are in the messages."""

    def act(self, conversation: palestra.Conversation) -> str:
        replies = [message for message in conversation.messages if message.role == "assistant"]
        return f"\\boxed{{{len(replies) + 1}}}"


print(palestra.evaluate("game:GuessTheNumber-v0-easy", CountsUp(), n=20).suite.score)
