"""A LangGraph agent in two nodes: the model writes an action, and the environment answers."""

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph


async def run(episode):
    model = ChatOpenAI(model=episode.model, base_url=episode.base_url, api_key=episode.api_key)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state):
        return {"messages": [("user", await episode.step(state["messages"][-1].text))]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_edge("think", "act")
    graph.add_conditional_edges("act", lambda state: END if episode.ended else "think")
    await graph.compile().ainvoke({"messages": list(episode.messages)})
