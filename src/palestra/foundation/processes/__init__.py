"""Child processes that answer questions.

``Child`` starts a process that answers on its standard streams. ``Dialogue`` asks over any stream: the standard streams of a
``Child``, or the socket of a process that another process has forked. ``OtherPython`` is a ``Child`` with the Python of another
virtual environment; ``answering`` is the loop inside it. ``frames`` says where a message ends.

A question either gets its own answer or raises an ``OSError``, after which the dialogue is over: an answer that came late would
be taken for the answer to the next question. A ``Child`` is then killed before its caller continues.

=========  ==================================================  =======================================================
rule       what happens                                        what the caller gets
=========  ==================================================  =======================================================
hang       no answer before the deadline                       ``TimeoutError``
cancel     the caller stops waiting                            its own exception, such as ``CancelledError``
crash      the process ends, or has ended                      ``ConnectionError``; ``Child.printed`` has its last words
torn       an answer ends early, or cannot be decoded          ``ConnectionError``
flood      an answer is longer than the limit of its form      ``ConnectionError``
noise      the process prints without end                      nothing: only the last 1,000 bytes are kept
leftovers  processes that the child has started outlive it     nothing: they have 1 s to clean up, then their process
                                                               group is killed. One in a session of its own may live on
orphan     this process ends, however it does                  the child reads the end of its input and ends; with
                                                               ``answering``, also one that hangs, 5 s later
=========  ==================================================  =======================================================

A process that is forked elsewhere is killed by its user: a blocking environment by the process that forked it, the box of a
site by its pid. Other children follow rules of their own. The launcher and the containers of ``palestra.sandbox`` differ where
their security lies. A worker of ``palestra.grading.maths`` outlives a cancelled question, and a kernel timer ends its
computation. ScienceWorld's Java process is called from a thread, in the protocol of py4j. ``palestra check`` gives its children
one task and an allowance of CPU time. Servers of a run are asked over HTTP.
"""
