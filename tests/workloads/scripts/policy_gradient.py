"""Policy gradient on a corridor: the agent walks until it reaches an end."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(
    nn.Linear(5, 128), nn.Tanh(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2), nn.Softmax(dim=-1)
)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(100):
    place, log_probabilities, rewards = 2, [], []
    for _ in range(6):
        state = nn.functional.one_hot(torch.tensor(place), 5).float().unsqueeze(0)
        choice = Categorical(policy(state))
        action = choice.sample()
        log_probabilities.append(choice.log_prob(action))
        place = min(4, max(0, place + (1 if action.item() == 1 else -1)))
        rewards.append(1.0 if place == 4 else 0.0)
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.cat([-p * r for p, r in zip(log_probabilities, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
